"""Programs that a policy could write: hostile ones and honest ones, each under its name."""

import re


def by_name(text):
    """Programs that stand below one another, each below a line with its name -> name: program."""
    _, *parts = re.split("^# (.+)\n", text, flags=re.MULTILINE)
    return {name: program.strip() for name, program in zip(parts[::2], parts[1::2], strict=True)}


# Each goes on to the right answer where nothing stops it. {mark} is a file that it would make.
# Bombs are small, so that a limit that fails does not harm the machine.
REFUSED = by_name(
    r"""
# fork
import os
for _ in range(3): os.fork()

# fork and sleep
import os, time
if not os.fork(): time.sleep(20)

# forkpty
import os
os.forkpty()

# subprocess
import subprocess
subprocess.run(['touch', '{mark}'])

# multiprocessing
import multiprocessing
multiprocessing.Process(target=open, args=('{mark}', 'w')).start()

# os.system
import os
assert not os.system('touch {mark}')

# os.popen
import os
os.popen('touch {mark}').read()

# os.posix_spawn
import os
os.posix_spawn('/bin/touch', ['touch', '{mark}'], {})

# os.spawnlp
import os
os.spawnlp(os.P_WAIT, 'touch', 'touch', '{mark}')

# os.execlp
import os
os.execlp('sh', 'sh', '-c', 'touch {mark}; echo 7')

# open
open('{mark}', 'w').write('x')

# append
open('{mark}', 'a').close()

# exclusive
open('{mark}', 'x').close()

# os.open
import os
os.open('{mark}', os.O_CREAT | os.O_WRONLY)

# io.FileIO
import io
io.FileIO('{mark}', 'w')

# pathlib
import pathlib
pathlib.Path('{mark}').write_text('x')

# touch
import pathlib
pathlib.Path('{mark}').touch()

# mkdir
import os
os.mkdir('{mark}')

# symlink
import os
os.symlink('/etc/passwd', '{mark}')

# shutil
import shutil, sys
shutil.copy(shutil.__file__, '{mark}')

# tempfile
import tempfile
tempfile.mkdtemp()

# sqlite3
import sqlite3
sqlite3.connect('{mark}').execute('create table t (x)')

# shelve
import shelve
shelve.open('{mark}')

# relative
open('marker', 'w').write('x')

# relative os.open
import os
os.open('marker', os.O_CREAT | os.O_WRONLY)

# overwrite
import os
open('job.json', 'w').close()

# remove
import os
os.remove('job.json')

# rename
import os
os.rename('job.json', '{mark}')

# chdir
import os
os.chdir('/')

# socket
import socket
socket.socket()

# urllib
import urllib.request
urllib.request.urlopen('http://127.0.0.1')

# ctypes
import ctypes
ctypes.CDLL(None).getpid()

# read /etc/passwd
open('/etc/passwd').read()

# read by os.open
import os
os.read(os.open('/etc/passwd', os.O_RDONLY), 9)

# read /proc
open('/proc/self/environ').read()

# read its own tests
open('job.json').read()

# read through ..
import os
open(os.__file__ + '/../../../../../../../../../etc/passwd').read()

# kill the parent
import os
os.kill(os.getppid(), 9)

# kill the group
import os
os.killpg(os.getpgid(os.getppid()), 9)

# lift the limits
import resource
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
"""
)

# These end before they have passed a test.
STOPPED = by_name(
    r"""
# memory
x = bytearray(8 * 2**30)

# flood of stdout
while True: print('passed' * 1000)

# setsid
import os, time
os.setsid()
time.sleep(20)

# deep recursion
def f(n): return f(n + 1)
f(0)

# crash
import sys
sys.setrecursionlimit(10**9)
repr(type('A', (), {'__repr__': lambda s: repr(s)})())

# close stdout
import os
os.close(1)

# close sys.stdout
import sys
sys.stdout.close()

# SystemExit
raise SystemExit

# KeyboardInterrupt
raise KeyboardInterrupt

# exit
exit()

# quit
quit(0)

# sys.exit
import sys
sys.exit(0)

# os._exit
import os
os._exit(0)

# os.abort
import os
os.abort()

# print passed
print('passed')
import sys
sys.exit(0)
"""
)
STOPPED["bad source"] = "x = " + "(" * 10_000

# These go on until their deadline, or for about a second.
ENDLESS = by_name(
    r"""
# memory by doubling
x = [0]
while len(x) < 2**30: x += x

# silent flood
import os
while True:
    try: os.write(1, b'x' * 10000)
    except BaseException: pass

# flood of stderr
import sys
while True: sys.stderr.write('x' * 10000)

# endless loop
while True: pass

# loop that catches all
while True:
    try:
        while True: pass
    except BaseException: pass

# huge power
print(9 ** 9 ** 9)

# sleep
import time
time.sleep(20)

# sleeping thread
import threading, time
threading.Thread(target=time.sleep, args=(20,)).start()

# deaf to signals
import signal
for s in (1, 2, 14, 15, 24): signal.signal(s, signal.SIG_IGN)
while True: pass

# deeper recursion
import sys
sys.setrecursionlimit(10**9)
def f(n): return [f(n + 1)]
f(0)
"""
)

# Each reads "3\n1 2 3\n" and prints 6.
HONEST = by_name(
    r"""
# input
n = int(input())
print(sum(map(int, input().split())))

# sys.stdin.read
import sys
print(sum(map(int, sys.stdin.read().split()[1:])))

# sys.stdin
import sys
n, line = sys.stdin
print(sum(map(int, line.split())))

# readline
import sys
input = sys.stdin.readline
input()
print(sum(map(int, input().split())))

# open(0)
print(sum(map(int, open(0).read().split()[1:])))

# stdin.buffer
import sys
print(sum(map(int, sys.stdin.buffer.read().split()[1:])))

# os.read
import os
print(sum(map(int, os.read(0, 10**6).split()[1:])))

# sys.stdout.write
import sys
sys.stdout.write(str(sum(map(int, sys.stdin.read().split()[1:]))))

# stdout.buffer
import sys
sys.stdout.buffer.write(b'6')

# until EOF
total = -3
try:
    while True: total += sum(map(int, input().split()))
except EOFError: print(total)

# main
def main():
    print(6)
if __name__ == '__main__':
    main()

# exit
print(6)
exit()

# sys.exit
import sys
print(6)
sys.exit(0)

# globals
total = 0
def add(x):
    global total
    total += x
[add(x) for x in (1, 2, 3)]
print(total)

# recursion
import sys
sys.setrecursionlimit(10**6)
def f(n): return n and 1 + f(n - 1)
print(f(20000) - 19994)

# big numbers
print(6 if len(str(2**10000)) == 3011 else 0)

# many numbers
print(6 if sum(range(10**6)) == 499999500000 else 0)

# 100 MB
x = bytearray(10**8)
print(6)

# collections
from collections import Counter, defaultdict, deque
d = defaultdict(int, Counter('aab'))
print(deque([d['a'] + d['b'] + 3])[0])

# namedtuple
from collections import namedtuple
print(sum(namedtuple('P', 'x y')(2, 4)))

# heapq
import heapq
h = [9, 6, 7]
heapq.heapify(h)
print(heapq.heappop(h))

# math
import math
print(math.gcd(12, 18) * math.isqrt(36) // 6)

# itertools
import itertools
print(len([*itertools.permutations('abc')]))

# functools
from functools import lru_cache, reduce
@lru_cache(None)
def f(n): return n * f(n - 1) if n else 1
print(reduce(max, map(f, range(4))))

# bisect
import bisect
print(bisect.bisect_left(range(10), 6))

# re
import re
print(re.findall(r'\d', 'a6')[0])

# string
import string
print(string.ascii_lowercase.index('g'))

# random
import random
random.seed(0)
print(random.choice([6]))

# datetime
import datetime
print(datetime.datetime.strptime('2024-06-01', '%Y-%m-%d').month)

# typing
from typing import List, Optional
def f(x: List[int]) -> Optional[int]: return sum(x)
print(f([1, 2, 3]))

# decimal
from decimal import Decimal, getcontext
getcontext().prec = 50
print(int(Decimal('0.1') * 60))

# fractions
from fractions import Fraction
print(Fraction(1, 2) * 12)

# dataclasses
from dataclasses import dataclass
@dataclass
class P:
    '''A point.'''
    x: int
print(P(6).x)

# enum
from enum import Enum, auto
class E(Enum):
    A = 6
print(E.A.value)

# json
import json
print(json.loads('[6]')[0])

# threading
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(2**26)
t = threading.Thread(target=lambda: print(6))
t.start()
t.join()

# array
from array import array
print(sum(array('i', [1, 2, 3])))

# copy
import copy
print(copy.deepcopy([[6]])[0][0])

# statistics
import statistics
print(statistics.median([5, 6, 7]))

# operator
from operator import itemgetter
print(itemgetter(0)([6]))

# io
import io, sys
sys.stdin = io.StringIO(sys.stdin.read())
print(2 * int(input()))

# time
import time
time.perf_counter()
time.sleep(0.01)
print(6)

# other modules
import abc, ast, base64, calendar, cmath, contextlib, gc, hashlib, inspect, numbers, os, pprint
import queue, struct, textwrap, traceback, types, unittest, uuid, warnings, weakref
gc.disable()
print(6)
"""
)
