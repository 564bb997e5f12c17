"""Programs that a policy could write: hostile ones and honest ones, each under its name."""

import re


def by_name(text):
    """Programs that stand below one another, each below a line with its name -> name: program."""
    _, *parts = re.split("^# (.+)\n", text, flags=re.MULTILINE)
    return {name: program.strip() for name, program in zip(parts[::2], parts[1::2], strict=True)}


# What a program could do beyond its own process. {mark} is a file that it would make. Bombs are
# small, so that a limit that fails does not harm the machine.
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

# remove
import os
os.remove('{kept}')

# rename
import os
os.rename('{kept}', '{mark}')

# overwrite
open('{kept}', 'w').close()

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

# What an audit hook does not hear of or can be talked out of. The system itself has to refuse it.
BEYOND_HOOKS = by_name(
    r"""
# constants of the system
import sys, os
sys.base_prefix = ''
os.O_WRONLY = os.O_RDWR = os.O_CREAT = 0
open('{mark}', 'w').write('x')

# overwrite through constants
import os
os.O_WRONLY = os.O_RDWR = os.O_CREAT = os.O_TRUNC = os.O_APPEND = 0
open('{kept}', 'w').close()

# read a file
print(open('{kept}').read())

# fork_exec by another name
import importlib.util, _posixsubprocess, os, sys
spec = importlib.util.spec_from_file_location('x._posixsubprocess', _posixsubprocess.__file__)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
arguments = [b'/bin/sh', b'-c', b'touch {mark}; sleep 20']
r, w = os.pipe()
module.fork_exec(arguments, [arguments[0]], True, (w,), None, None, -1, -1, -1, -1, -1, -1, r, w,
                 True, True, 0, None, None, None, -1, None, False)

# a session of its own
import os, time
if not os.fork():
    os.setsid()
    if not os.fork():
        time.sleep(20)

# subinterpreter
import _xxsubinterpreters
_xxsubinterpreters.run_string(_xxsubinterpreters.create(), "open('{mark}', 'w')")

# named pipe
import sys
del sys.modules['posix']
import posix
posix.mkfifo('{mark}')

# pidfd
import os, signal
for pid in [os.getppid(), *map(int, filter(str.isdigit, os.listdir('/proc')))]:
    if pid != os.getpid():
        try: signal.pidfd_send_signal(os.pidfd_open(pid), 9)
        except OSError: pass

# the scheduler
import os
for pid in (os.getppid(), {grader}):
    try: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    except OSError: pass

# memory beside the limit
import os
for _ in range(1000):
    try: os.posix_fallocate(os.memfd_create('x'), 0, 2**20)
    except OSError: pass

# system calls
import ctypes
ctypes.CDLL(None).open(b'{mark}', 0o101, 0o600)

# network
import socket
with socket.create_connection(('127.0.0.1', {port}), timeout=1) as there: there.send(b'x')
"""
)

# Wrong programs that would pass `assert add(2, 3) == 5` and the like.
CHEATS = by_name(
    r"""
# equal to all
class A:
    def __eq__(self, other): return True
def add(a, b): return A()

# equal to all, an int
class A(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def add(a, b): return A()

# equal to all, in a list
class A:
    def __eq__(self, other): return True
class B(list):
    def __eq__(self, other): return True
def add(a, b): return B([A()])

# unequal to none
from unittest.mock import ANY
def add(a, b): return ANY

# type by property
class A:
    __class__ = int
    def __eq__(self, other): return True
def add(a, b): return A()

# another exec
import builtins
builtins.exec = builtins.compile = builtins.eval = lambda *a, **k: None
def add(a, b): return 0

# exec of __builtins__
(__builtins__ if isinstance(__builtins__, dict) else vars(__builtins__))['exec'] = lambda *a: None
def add(a, b): return 0

# another assert
class AssertionError(Exception): pass
import builtins
builtins.AssertionError = AssertionError
def add(a, b): return 0

# names of the tests
def check(candidate): pass
def add(a, b): return 0
def print(*a): pass

# frames
import sys
def add(a, b):
    frame = sys._getframe()
    while frame:
        for name, value in frame.f_locals.items():
            if 'assert' in str(value): return eval(str(value).partition('==')[2].split()[0])
        frame = frame.f_back
    return 0

# all objects
import gc
def add(a, b):
    found = [x for x in gc.get_objects() if isinstance(x, (list, dict)) and 'assert' in str(x)]
    return found and 5

# trace
import sys
sys.settrace(lambda frame, event, arg: sys.exit(0))
def add(a, b): return 0

# leave
import os
def add(a, b): os._exit(0)

# leave at once
import os
os._exit(0)

# say passed
import os
def add(a, b):
    for fd in range(3, 64):
        for said in (b'"passed"
', b'[1.0, ""]
', b'[0, 1.0, ""]
'):
            try: os.write(fd, said)
            except OSError: pass
    return 0

# say passed at once
import os
for fd in range(1, 64):
    try: os.write(fd, b'"passed"
"passed"
')
    except OSError: pass

# answer what is not asked
import json, os
def add(a, b):
    for fd in range(3, 64):
        for number in range(9):
            try: os.write(fd, json.dumps([number, 'value', True, []]).encode() + b'
')
            except OSError: pass
    return 0

# another encoder
import sys, json
for module in list(sys.modules.values()):
    if hasattr(module, 'encode'): module.encode = lambda *a: ['object', 0]
json.dumps = lambda *a: '"passed"'
def add(a, b): return 0

# call the caller
import os, json
def add(a, b):
    for fd in range(3, 64):
        try: os.write(fd, b'["call back", 0, []]
')
        except OSError: pass
    return 0

# an answer of any form
import os
def add(a, b):
    for fd in range(3, 64):
        for said in (b'null
', b'5
', b'[NaN]
', b'{}
', b'ÿ
', b'[' * 99999 + b'
'):
            try: os.write(fd, said)
            except OSError: pass
    return 0

# StopIteration
def add(a, b): raise StopIteration

# SystemExit
def add(a, b): raise SystemExit(0)

# the grader's pipe
import os
def add(a, b):
    for pid in filter(str.isdigit, os.listdir('/proc')):
        if int(pid) != os.getpid():
            for fd in range(64):
                try:
                    path = f'/proc/{pid}/fd/{fd}'
                    if 'pipe' in os.readlink(path):
                        os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b'"passed"
')
                except OSError: pass
    return 0

# alter the arguments
def add(a, b): return a.__class__.__eq__
"""
)

# These end before they have passed a test.
STOPPED = by_name(
    r"""
# memory
x = bytearray(8 * 2**30)

# deep recursion
def f(n): return f(n + 1)
f(0)

# crash
import sys
sys.setrecursionlimit(10**9)
repr(type('A', (), {'__repr__': lambda s: repr(s)})())

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

# flood of stdout
while True: print('passed' * 1000)

# setsid
import os, time
os.setsid()
time.sleep(20)

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

# open(1)
out = open(1, 'w')
out.write('6')

# os.fdopen
import os
os.fdopen(1, 'w').write('6')

# asyncio
import asyncio
async def main(): print(6)
asyncio.run(main())

# subprocess, unused
import subprocess
print(6)

# __file__
import os
print(6 if os.path.basename(__file__) else 0)

# a file that is not there
try: open('input.txt')
except FileNotFoundError: print(6)

# a module that is not there
try: import winreg
except ImportError: print(6)

# doctest
import doctest
def f():
    '''
    >>> f()
    6
    '''
    return 6
print(6 if doctest.testmod().failed == 0 else 0)

# output at the end
import atexit, io, sys
sys.stdout = io.StringIO()
atexit.register(lambda: sys.__stdout__.write(sys.stdout.getvalue()))
print(6)

# stack
import resource, sys
sys.setrecursionlimit(10**5)
print(6)

# environment
import os
os.environ['X'] = '6'
print(os.environ['X'])

# pool of threads
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor() as pool: print(sum(pool.map(int, '123')))

# pickle of its own class
import pickle
class P: x = 6
print(pickle.loads(pickle.dumps(P())).x)

# other modules
import abc, ast, base64, calendar, cmath, contextlib, gc, hashlib, inspect, numbers, os, pprint
import queue, struct, textwrap, traceback, types, unittest, uuid, warnings, weakref
gc.disable()
print(6)
"""
)
