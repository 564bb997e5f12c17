"""Answers that are right, wrong, or cannot be read, in boxes.

An entry is `gold :: right answers :: wrong ones :: those that cannot be read`, with two blanks
between answers. Lines that begin with blanks go on with it, and ` ;; ` ends a short one.
"""

import re


def answers(table):
    """(answer, gold, reward) of each answer; the reward is None where nothing can be read."""
    for entry in re.split(r"\n(?! )| ;; ", table.strip("\n")):
        gold, *columns = entry.split(" ::")
        for reward, column in zip((1.0, 0.0, None), columns, strict=False):
            found = re.split(r"\n +|  +", column.strip())
            yield from ((answer, gold, reward) for answer in found if answer)


MATH = r"""
# numbers, bases, thousands, fractions
52_8 :: 52_{8}  52_8  N = 52_8  52 :: 52_7  x = 52_7  52_{10} ;; 3 :: 1.+2 ;; 25 :: :: :: 1 = 25\%
5 :: 5  5.  5.0  +5  $5$  2+3=5\text{ apples}  5\text{ cm}  x=5  5=x  \frac{10}{2}  5 apples  2+3=5
    x = 2+3 = 5  f(2)=5  \text{Area} = 5  5\%  05  {5}  |AB| = 5  S_{\triangle ABC}=5  n = 5.
    \lim_{x\to 0} f(x) = 5  m\angle A = 5^\circ  \hat{\beta}_1=5  A = \frac{1}{2}bh = 5  f^{-1}(x)=5
    f'(x)=5  \lambda_1^2 = 5  5\ \mathrm{m/s}  5 \text{ m}^2  x=5 \text{ cm}  5 = 5  A \cup B = 5
    x \approx 5  \approx 5  = 5  x := 5  \Large 5  5;  5\;\text{cm}  5\:\text{cm}  \text{Answer: } 5
    5\qquad  \text{The answer is } 5  `5`  5 pints  5\,\mu m  5\,\text{cm³}  5 N  5\,\Omega
    5\ \mu\text{m}  5 \frac{\text{miles}}{\text{hour}}  5\,\text{cm²}  5 \pmod 7  \min\{5,8\}
    5, 5.0 :: 6  -5  x=6  5 or 6  5 \text{ or } 6  5, 6  5 x  5N  \text{not } 5  5!  5x
    5\text{ million}  5 million  \frac15  0.5  x<5  x \ne 5  5 1/2  4, x=5  \{5,6\}  (5,5)  5 \pm 1
    \pm 5  5i  5a  five6 :: 4 \to 5  4 \circ 5  5 6  5 \text{ or 6}  The answer is 5  5@5  4 | 5  =
    2+2=5  5=6  x=5=6 ;; 0.5 :: \frac{1}{2}  x=\frac{1}{2}  P(A|B)=\frac12 :: \frac{1}{3}  50\%  50%
0 :: 0  2-2  1 + (-1)  \sin\pi  \ln 6-\ln 2-\ln 3  \frac12-\frac12  x = 2 - 2 :: 2-3  1e-9  \cos\pi
1000 :: 1,000  1{,}000  1000  1\,000  1,\!000  1, \! 000  1 000  10^3  1\times10^{3}  1e3  1000.0
    1 \text{ thousand}  1E3  1e+3 :: 1,00  1, 000, 0  10000 ;; 1,000 :: 1000 :: 1, 0
\frac{1}{2} :: 0.5  1/2  \frac12  \dfrac{1}{2}  x=1/2  \frac 12  .5  2^{-1}  \tfrac12  \sfrac12
    \frac{1}{2} = 0.5  ½  P = \frac{3}{6} = \frac{1}{2}  \nicefrac{1}{2}  1⁄2  \sin(30^\circ)
    \sin{30^\circ}  \frac{1}{2} m :: \frac{2}{1}  0.50001  1\frac12  1, 2  50\% :: 1 2
1000,2000 :: 1,000, 2,000 ;; (1000,5) :: (1,000, 5) ;; 1000200 :: :: 1000,200 ;; 200 :: :: 0,200
(100,200) :: (100, 200) ;; 1_3 :: :: 1_2 ;; 1200,3 :: :: 1,200,3
# roots, functions, equations, formulas
2\sqrt{2} :: \sqrt{8}  2\sqrt{2} cm :: 2\sqrt{3} ;; 12 :: 3\cdot 4  12\,\mathrm{m} :: 1,2
10 :: {5 \choose 2} ;; 30 :: θ=30° ;; θ=30° :: 30 :: 60 ;; \frac{x}{2} :: f^{-1}(x)=\frac{x}{2}
f^{-1}(x)=\frac{x}{2} :: \frac{x}{2} :: f(x)=\frac{x}{2} ;; -2 :: \sqrt[3]{-8}  (-8)^{1/3} :: 2
2k\pi :: 2k\pi, k\in\mathbb{Z}  2k\pi, k\in\mathbb{N} :: 2k\pi, k ;; \frac{2m}{h} :: 2m/h :: 2 m/h
-\sqrt[3]{x} :: \sqrt[3]{-x} :: \sqrt[3]{x} ;; 2 :: \sqrt{\sqrt{16}}  2 m/h :: \sqrt{2}  \pm 2  2m/h
\frac{1+\sqrt{3}i}{2} :: e^{\pi i/3}  \cos 60^\circ + i\sin 60^\circ :: \sqrt[3]{-1}  e^{\pi/3}
3 :: \sqrt[3]{27}  \log_2 8  |-3|  x_1=3  x=y=3  f(-2)=3 :: 3.1 :: 2+2=3  4 \equiv 3  4=x=3
    \frac{2+2}{1} = 3 ;; \sqrt{2} :: \sqrt2  √2  x=\sqrt{2} :: 1.414  -\sqrt2  \pm\sqrt2
1800 :: 12 \times 150 = 1,800  N = 12 \times 150 = 1{,}800  12 \times 150 = \$1,800 ;; e^2 :: exp(2)
24 :: 4! = 24  N = 4! = 24 :: x != 24 :: A = \frac12 \cdot 6 \cdot 4 = 24 \text{ cm}^2
24 :: (2+2)! = 24  {4}! = 24 ;; 25 :: 0.25 = 25\%  \frac{20}{80} \times 100\% = 25\% :: :: 4! = 25
\infty :: \infty  ∞  infinity  +\infty  inf :: -\infty  0 ;; -\infty :: -inf ;; \csc x :: csc x
\cot x :: cot x ;; \tan x :: tan x ;; \arcsin x :: arcsin(x) ;; \sinh x :: sinh x ;; \sec x :: secx
1 :: \tan 45^\circ  \sec 0^\circ  \csc 90^\circ  \sin^2 x+\cos^2 x ;; 30 :: 30^o  30^\circ F
9 :: √81  3√9 :: 3√13 ;; \frac{3+\sqrt{17}}{4} :: (3+√17)/4 ;; \log x :: log x ;; 2 :: \lg 100
\sin 2x :: \sin x\cdot 2\cos x  2\sin x\times\cos x  \sin 2*x :: \sin 2x\cos x ;; \sqrt{2.5} :: √2.5
\csc x :: cosec x  \operatorname{cosec} x ;; 5\sin 2\pi t :: 5\sin 2\pi\cdot t ;; I_0 :: I_{0}
5\tan 2\pi t :: 5\tan 2\pi\times t  5\tan 2\pi*t ;; 2\arcsin x :: \arcsin x\cdot 2
2\csc x :: \csc x*2 ;; 2\sec x :: \sec x\times2 ;; 2\cot x :: \cot x\cdot2 ;; 8 :: \max\{5,8\}
2\cos\theta :: \cos\theta\cdot 2 ;; 3\ln 2 :: \ln 2*3 :: \ln 6 ;; m_e c^2 :: m_{e}c^2 :: mc^2
x_I+x_{I} :: 2x_{I} ;; 9 :: \log_2 8\cdot 3  \log_{2} 8\cdot 3 :: \log_2 24 ;; 2 :: \gcd\{6,4\}
\bar x :: \bar{x} :: x ;; \sin^2 x\cdot\cos x :: \cos x\sin^2 x :: \sin^2(x\cos x)
2.5x^{0.5} :: 2.5\sqrt x ;; \frac13E_1+\frac23E_2 :: \frac{E_1+2E_2}{3} :: E_1 ;; F :: F. Paris  (F)
e^2+1 :: 1+\mathrm{e}^2  \text{e}^{2}+1 :: 1 ;; (1,-1),(-1,1) :: (\pm1,\mp1) :: (\pm1,\pm1)
1+2i :: 2\mathrm{i}+1  1 + 2 i  \frac{2+4i}{2}  1+2\text{i} :: 1-2i
-3+\sqrt2, -3-\sqrt2 :: x = -3 \pm \sqrt{2} ;; x<3 :: x<3  3>x  x < 3 :: y<3  x>3  x\le 3  x≤3  3
y=2x+1 :: y=2x+1  2x+1=y  y = 2x+1  y-2x=1  2x+1 :: y=2x+2  x=2y+1  2x+2
(3,2) :: (x,y)=(3,2)  x=3, y=2  (3,2)  \left(3, 2\right)  (3,\ 2)  (3.0,2)  (\frac{6}{2},2)  P(3,2)
    3, 2 :: 2, 3  (2,3)  3  (3,2,1)  (3,3)  x=2, y=3 :: (2,3)=(3,2)
# inequalities, intervals, sets, pairs, matrices
-1<x<2 :: -1<x<2 :: -1<x<3 ;; -a<x<a :: a>x>-a :: a<x<-a ;; \{1,2,3\} :: \{3,1,2\} :: \{1,2\}
[0,1) :: [0,1)  \left[0,1\right)  x \in [0,1) :: [0,1]  (0,1)  [0,2) ;; 1,2 :: (2,1) ;; 5k :: $5k$
(-\infty, 3] :: (-\infty,3] :: (-\infty,3)  (\infty,3] ;; x=3, y=2 :: (3,2)  y=2, x=3 :: (2,3)
(1,2)\cup(3,4) :: (3,4)\cup(1,2) :: (1,2)\cup(3,5) ;; [-2,7] :: x\ge-2 \text{ and } x\le7 :: x\ge-2
\emptyset :: \varnothing  \{\}  ∅ :: 0  \{0\}  x  \text{even} ;; x_1=3, x_2=1 :: (1,3)
x=1, x=3 :: (1,3)  (3,1)  x=1; x=3 :: (1,2) ;; (-\infty,\infty) :: x\in\mathbb{R} :: x\ge-2, x\le7
(1,2) :: \langle 1, 2 \rangle  （1，2） :: (2,1)  (1,2,3) ;; 5\cos 2\pi t :: 5\cos 2\pi\cdot t
\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} :: \begin{pmatrix}1&2\\3&4\end{pmatrix}
    \begin{pmatrix}1&2\\[4pt]3&4\end{pmatrix} :: \begin{pmatrix}1&2\\3&5\end{pmatrix}
    \begin{pmatrix}1&3\\2&4\end{pmatrix}  \begin{pmatrix}1&2\\3&4\\5&6\end{pmatrix}
(-\infty,-2)\cup(1,3) :: x<-2 \text{ or } 1<x<3 :: x<-2 \text{ or } 1<x<4
a=1, b=4 :: (a,b)=(1,4)  b=4.0, a=1 :: (a,b)=(4,1) ;; \text{Mississippi} :: Mississippi
\text{non-real} :: non-real :: non-lear
# words, letters, percents, options, units that begin as a function's name
B :: \text{(B)}  B  (B)  B. 30^\circ  \textbf{(B) }30  \text{B. Paris}  Option B  B) 30 :: C  (C) 30
    A or B  30 :: A. B ;; 50 :: 50\%  50% :: 5\% ;; 50\% :: 50 :: 0.5 ;; 0.00001 :: :: 0.0000105
x^2+1 :: x^2+1  1+x^2  f(x)=x^2+1  y = 1+x^2  f(x) = x^2+1 = 1+x^2 :: (x+1)^2  x^2-1  f(x)=x^2
8 :: :: :: A = 3+4 = 8\text{ cm} ;; \log 0 :: \log 0 :: 0 ;; 204000 :: 204000 :: 204\,\text{K}
\text{even} :: even  \text{Even}  \mathrm{even}  \textbf{even} :: \text{not even}  odd  veen  e
204 :: 204 minutes  204 modules  204 km/h  204 m/s  204 °C  204 in  204 hr  204 lb  204 oz  204 ft
    204 sq ft  204 ml  204ml  204 cm  204mm  204km  204 mg  204 mi/h  204 ft/min  204 cm/s
    204^\circ C  204\degree  204 kg  204 km/hr  204 cm^2  \textbf{(A) }204  \text{(E)}\ 204  (E) 204
    \angle 2 = 204  m∠1 = 204  204_{10}  \lfloor 100x \rfloor = 204  204\text{ J/(mol K)}
    204\,\text{kg}\cdot\text{m/s}  204\ \text{W}\cdot\text{m}^{-2}\cdot\text{K}^{-1} :: 204 \sin x
    204 sin x  204_8  (A) 203  \angle 204 = 3  (A)  204 sinx  204 sinh x  204 logx  204 cosecx
    (A) or 204  204x/h :: 204 \max ;; 52_8, 13_8 :: 13_8, 52_8 :: 52_7, 13_7  52_8
(A) \cup (B) :: (A) \cup (B) :: A ;; \text{(A)} :: A  \textbf{(A) } 5 :: B  (B) 5
A, C :: A, C  (A) and (C)  \text{(A)}, \text{(C)} :: A  (C)  (A) and (D)
\frac13 :: \cos 2\theta = \frac13  \sin(2A) = \frac13  0.33333333  ⅓ :: \cos 2x = \frac14  0.333
    :: \cos 0 = \frac13  \tan 20^\circ = \frac13 ;; 2 sinx :: 2 sin x :: 2 cosx  2
# mixed numbers, words that multiply, lists; words and letters are no factors, which commute
\frac{3}{2} :: 1\frac{1}{2}  1 1/2  1 \frac12 :: \frac{11}{2}  1 :: 2.1 1/2  1 1/2.5
AB :: \text{AB} :: BA  A ;; 1234567 :: :: :: 1234 567 ;; 100000 :: :: :: 1 000 00
3000000 :: 3 \text{ million}  3 million  3,000,000 :: 3  3 \text{ billion} ;; \mathbb{R} :: ℝ :: R
2, -2 :: 2\text{, }-2  \pm 2  -2, 2  2 \text{ or } -2  x=2, x=-2  x = 2 \text{ or } x=-2  \{2,-2\}
    x=\pm 2  2 and -2  2, and -2  -2; 2  ±2  \{\pm2\} :: 2  -2  2, -3  2, -2, 0  \pm 3  (2,-2, 1)
\{0, \pm 2\} :: 0, 2, -2  \{-2, 0, 2\}  0, \pm 2 :: 2, -2  \{0, 2\} ;; E :: \text{E}  (E) :: e  F
x=5 :: x=5  5  x = 5  5 = x  x=5.0 :: 6  x=6  y=6  y=5  x<5 ;; R :: R :: \mathbb{R}  R 12
C :: (C)  \textbf{(C)} :: B  CC  (A) or (C)  C OR D  C_{12}  C'BD  C^2 + x ;; -0.5 :: –0.5  −0.5
2ab :: 2ba  ab2  2 \cdot a b :: ab  2a ;; 0.\overline{3} :: 0.\overline{3} :: 3  0.3
\text{Alice}, \text{Bob} :: Alice, Bob  \text{Alice and Bob} :: Alice  Alice, Carl  Bob, Carl
6\pi :: C = 2\pi r = 6\pi  6π  6\pi \text{ cm}  \pi \cdot 6  6\pi meters  6\pi cm :: 18.85  6\pi^2
0.1\overline{6} :: \frac16 ;; 4^{1012} :: 2^{2024} ;; \frac{100!}{50! \cdot 50!} :: \binom{100}{50}
10 :: \binom52  \dbinom{5}{2} :: \binom53\cdot 2 ;; 5050 :: \sum_{n=1}^{100} n
x^3 + 3x^2 + 3x + 1 :: (x+1)^{3}
# large numbers that are still worked out, and tiny ones
\frac{x}{2^{99}} :: :: \frac{x}{2^{98}} ;; \{\frac{1}{2^{99}}\} :: :: \{\frac{1}{2^{98}}\}
\frac{1}{2004!} :: \frac{1}{2004!} :: \frac{1}{2006!} ;; \frac{\pi}{2^{99}} :: :: \frac{\pi}{2^{98}}
x=\frac{1}{2^{99}} :: :: x=\frac{1}{2^{98}} ;; x<\frac{1}{2^{99}} :: :: x<\frac{1}{2^{98}}
e^{-100} :: :: e^{-101} ;; 10^{-20} :: :: 0 ;; 10^{-20}+\pi :: :: \pi ;; \frac{dy}{dx}=2x :: 2x
\begin{pmatrix} 2^{-99}\\1\end{pmatrix} :: :: \begin{pmatrix} 2^{-98}\\1\end{pmatrix}
1.6\times10^{-19} :: 1.60\times 10^{-19} :: 1.6\times10^{-20}  0  -1.6\times10^{-19}
3.89e-10 :: 3.89 \times 10^{-10}  0.000000000389 :: 0.0  3.88e-10  0.000000000255
\frac{4\cdot 10 \cdot 4^4}{\binom{52}{5}} :: :: 0.0039
# decimals: to their own digits in the gold, and to one part in a million in the answer
\frac{5}{12} :: \frac{2.5}{6} ;; \frac{\sqrt{3}}{2} :: 0.8660254 ;; \sqrt2 :: :: 1.41
0.003846 :: \frac{1}{260} :: 0.003848 ;; [0,\frac13] :: [0,0.3333333] ;; \{0.5,1\} :: \{\frac12,1\}
(\frac12,\frac13) :: :: (0.5, 0.333) ;; 0.5x+1 :: \frac{x}{2}+1 :: 0.5x  0.5x+1+y ;; 2.5 :: 2\frac12
3.14r^2 :: \pi r^2 ;; y=0.5x :: y=\frac{x}{2}  2y=x ;; 3.1\cdot1.23456 :: 3.83 ;; 0.333 :: \frac13
12500 :: 1.25\times10^{4} :: 1.25\times10^{5} ;; 3\times10^8 :: :: 2.998\times10^8 ;; 0.1+0.2 :: 0.3
3.0\times10^8 :: 300000000  2.998\times10^8 :: 2.9\times10^8 ;; 0.33 :: :: \frac13 ;; 9.81 :: :: 9.8
16.67 :: \frac{50}{3} ;; 10^{8}\pi :: 3.14159265\times10^8 ;; 123456789 :: 123456789.0 :: 123456788
\frac{50}{3} :: \frac{50}{3} \approx 16.67  x = \frac{50}{3} = 16.67 :: 16.67
1000000 :: :: 1000000.4 ;; x<0.33 :: x<\frac{33}{100} ;; 1<x<2.5 :: (1,\frac52)
# inequalities and equations, multiplied by a number
x<2y :: 2x<4y  -x>-2y  x-2y<0  0.5x<y :: 2x>4y  -2x<-4y  x\le2y  -x\le-2y  x<2.5y
2x+y\le 4 :: y\le4-2x  4x+2y\le8 :: 2x+y<4  2x+y\ge4 ;; x^2\ge 4y :: \frac{x^2}{4}\ge y
x\ne2y :: -x\ne-2y ;; y=\frac2x :: xy=2 ;; 3x=-2y :: -3x=2y :: 3x=2y
\{x\mid x>2\} :: x>2  (2,\infty) :: x<2
x>2 :: \{x\in\mathbb{R}: x>2\}  \{x | x>2\}  \{x \vert x>2\}  (2,\infty)
# times of day, ratios
10:30 \text{ a.m.} :: 10:30 :: 10:30 \text{ p.m.}  10:31 ;; 5 AM :: :: 5 PM  17:00 AM ;; 9:30 :: 0.3
5 PM :: 5 PM  5:00 p.m.  17:00  5 :: 17:00 AM ;; 12 PM :: :: 12 AM ;; 12:00 AM :: 0:00  24:00
8 \text{ a.m.}, 5 \text{ p.m.} :: 8 AM and 5:00 PM :: 8 AM, 5 AM  5 PM, 8 AM
    8 \text{ p.m.}, 5 \text{ a.m.} :: 8 AM ;; 1 hour and 30 minutes :: :: 30 hours and 1 minute
1 \text{ hr } 30 \text{ min} :: 1 hour and 30 minutes  1 h 30 min :: 130  30 hr 1 min  30
12{:}15 \text{ am} :: 12:15  0:15 ;; 100 pm :: 100 pm ;; S_1:S_2=7:32 :: 7:32 ;; 2:30 :: :: 2.5
1:2:3 :: 2:4:6 :: 1:2:4  \frac16  3:2:1  1,2,3  (1,2,3) ;; 1:\sqrt3:2 :: 1:\sqrt{3}:2
3:2 :: \frac{3}{2}  6:4  3 \text{ to } 2  3 to 2 :: 2:3 ;; 2 : 3 :: 2:3  2\colon3
# equations, and the bare value of a name
x+z=1 :: :: 1 ;; xy=6 :: y=\frac6x :: 6 ;; \sin x=1 :: :: 1 ;; x^2=4 :: :: 4 ;; x^2+y^2=25 :: :: 25
f(x)=x^2 :: x^2 ;; f'(x)=2x :: 2x ;; AB=5 :: 5 ;; |AB|=5 :: 5 ;; \triangle ABC=5 :: 5 ;; a_1=3 :: 3
\angle ABC=30^\circ :: 30 ;; x+y=5 :: y=5-x  2x+2y=10 :: x+y=6 ;; x^2+y^2=1 :: x^2+y^2-1=0
x^2+1=0 :: :: x^2+2=0 ;; 2x+3y=6 :: y=-\frac23x+2 ;; y^2=4x :: :: 4x ;; a=b :: b=a :: 1
e^{x}=1 :: :: 1 ;; \text{Area}=12 :: 12 ;; P(A)=\frac13 :: \frac13 ;; S_n=n^2 :: n^2
x=1,y=2 :: 1,2 ;; x_1=3,x_2=4 :: 3,4 ;; x = 2 \text{ or } x=3 :: 2,3 ;; x+y=3, x-y=1 :: :: 3,1
\frac{x}{2}=3 :: :: 3 ;; y-2=3(x-1) :: y=3x-1 :: 3(x-1) ;; \sqrt{x}=3 :: :: 3
# letters keep their case, unless a whole answer has another one
\pi(R^2-r^2) :: \pi(R-r)(R+r) :: 0  \pi(r^2-R^2) ;; i^2 :: -1 ;; \frac{N}{n} :: :: 1 ;; Aa :: :: a^2
2X :: 2x ;; \Gamma-\gamma :: :: 0 ;; \Delta-\delta :: :: 0 ;; \gamma :: \gamma ;; I^2R :: :: -R
2\gamma_1 :: 2\gamma_1  2\gamma_{1} ;; I^2 R :: RI^2 ;; i(2-i) :: 1+2i ;; a+bi :: bi+a :: a-bi
f'(x) :: :: f(x) ;; y'' :: :: y'  y ;; x_A :: x_a ;; V=IR :: IR ;; M-m :: :: S-s
\sum_{i=1}^{n} i :: \frac{n(n+1)}{2} ;; S_N - s_n :: :: 0  M_n-m_n ;; X+y+Y :: :: x+y+Y
X+Y :: x+Y  y+x :: m-M  x+y+Y
f^{-1}(x) :: f^{-1}(x) :: \frac{1}{f(x)} ;; \angle ABC :: \angle CBA  ∠ABC :: \angle ACB  \angle BAC
# units of one kind are compared where both sides name one
5\text{ cm} :: 5\mathrm{cm}  5 cm  5\text{ centimeters}  5 :: 5\text{ m}  5 m  50\text{ mm}
5\text{ hours} :: 5\text{ hr}  5 h :: 5\text{ minutes}  5 min  5\text{ m} ;; 2 :: 2\text{ km}
1\text{ hr }30\text{ min} :: 1\text{ hour }30\text{ minutes} ;; 2 kg :: 2 kg :: 2 g
9\text{ cm}^2 :: 9\text{ square cm} :: 9\text{ m}^2 ;; 60\text{ km/h} :: 60 km/hr :: 60\text{ m/s}
5\text{ inches} :: 5\text{ in} :: 5\text{ feet} ;; 5\text{ days} :: 5\text{ days in a week}
2 m g :: 2 g m ;; \sqrt{2 g h} :: \sqrt{2 h g} ;; \$3\text{ per pound} :: 3\text{ dollars}
20\text{ miles} :: 20\text{ in total} ;; h^{-1}(a+b) :: \frac{a+b}{h} ;; \angle ABC :: \angle{A B C}
# Unicode, currencies, magnitudes, as in a program
\frac73 :: 2⅓ ;; \mathbb{N} :: ℕ ;; f'(x) :: f′(x)  fʹ(x) ;; x\le3 :: x⩽3 ;; 5 :: ５ ;; -5 :: －5
x^2 :: x²  x**2 ;; 10^{-5} :: 10⁻⁵ ;; 2\frac34 :: 2¾ ;; 52_8 :: 52₈ ;; 1000 :: 1’000  1‘000
50 :: €50  £50  ¥50  ฿50  50¢  50 percent ;; \text{tan} :: tan :: cot ;; 1200000 :: \$1.2M
5000000 :: \$5\text{M} ;; x\ge3 :: x >= 3  x⩾3 ;; x\ne3 :: x≠3 ;; 2\times3 :: 2×3 ;; 2x :: 2·x  2⋅x
1,2 :: 1、2。 :: [1,2) ;; \left\{x \middle| x>2\right\} :: x>2 ;; 4:6 :: 2∶3  2∕3 ;; \frac13 :: 1./3
4\sqrt2 :: 4\sqrt(2)  4sqrt(2)  4*sqrt(2) ;; \frac{\pi}{2} :: pi/2 ;; \sqrt x\sqrt y :: \sqrt{xy}
\frac{1}{\sqrt n} :: \sqrt{1/n} ;; n \text{ even} :: :: n \text{ odd} ;; 1<x\le2 :: (1,2]
y+x\frac{dy}{dx} :: x\frac{dy}{dx}+y :: y ;; \frac{d}{dx}x^2 :: 2x ;; \sqrt{x^2} :: :: x
[2,5] :: 2\le x\le5 ;; x\in(2,\infty) :: x>2 ;; 5\text{ lakh} :: 500000 ;; \sin 30^\circ :: \frac12
\frac12 \text{ million} :: 500000 ;; 1500 :: 1.5k ;; 1200000 :: 1.2M ;; 0.5x :: 1.5/3 x
\frac43\pi r^3 :: 4/3 \pi r^3 ;; 2+3=5 :: 5 ;; 2+2=5 :: :: :: 3+3=7  2+2=5
\ln 2 :: ln 2  \text{ ln }2  \mathrm{ln} 2  \operatorname{ln} 2  \log_e 2 :: \lg 2
x\equiv2\pmod7 :: 2  2 \pmod{7}  2 (\bmod 7)  2 \mod 7  2 (\text{mod } 7) :: 2\pmod5
\{1,2\} :: \lbrace 1,2 \rbrace ;; \mathbb{R} :: \R  \mathbb R ;; A\cup B :: B \cup A :: A\cap B
\begin{cases}x=1\\y=2\end{cases} :: x=1,y=2 :: x=2,y=1 ;; \overline{3+4i} :: 3-4i :: 3+4i
1,2,\ldots,10 :: 1, 2, ..., 10  1,2,\dots,10  1,2,\cdots,10 :: 1,2,10
\vec{a}+\vec{b} :: \mathbf b + \mathbf a ;; \hat{i}+2\hat{j} :: 2\hat j+\hat i :: \hat{j}+2\hat{i}
\begin{pmatrix}\frac12\\1\end{pmatrix} :: \frac12\begin{pmatrix}1\\2\end{pmatrix}
# formulas, sets, complex numbers, other notations
(-\infty,-1)\cup(1,\infty) :: x<-1 \text{ or } x>1 ;; x<-1, x>1 :: (-\infty,-1)\cup(1,\infty)
|x|<3 :: -3<x<3 ;; x^2<9 :: -3<x<3 ;; \ln(ab) :: \ln a+\ln b ;; 0.1x+0.2x :: 0.3x ;; 2i :: \sqrt{-4}
m_1+M_1 :: :: 2m_1 ;; 0.005i :: :: 0.0054i ;; e^{i\pi} :: -1 ;; |3+4i| :: 5 ;; 1 :: \cot 45^\circ
I(0)e^{-\frac{t}{RC}} :: e^{-t/(RC)}I(0) :: 0 ;; 2k\pi :: 2k\pi,\text{ for any }k \in \mathbb Z
\overline x :: \overline{x} ;; 1,2 :: 2\text{, and }1  2\text{ and, }1 :: (1,2,2) ;; 12:75 :: 4:25
30:15 :: 60:30 ;; I :: I :: i ;; 1:0:2 :: 2:0:4 ;; 2:3 :: 2\text{:}3 ;; x\sqrt{y^2} :: :: xy
\frac{AB}{CD}=2 :: 2 ;; \lim_{x\to a} f(x)=5 :: 5 ;; x :: :: \frac{x}{0} ;; x^{n+103-i} :: xⁿ⁺¹⁰³⁻ⁱ
\mathbb{C} :: ℂ  \mathbb C ;; 1.5\sqrt x :: 0.5\sqrt x+x^{0.5} ;; x_{1+2-3} :: x₁₊₂₋₃
\mathbb{Z} :: ℤ  \Z ;; \mathbb{Q} :: ℚ  \Q ;; \mathbb{N} :: \N ;; H :: :: :: ℍ ;; P :: :: :: ℙ
2 \text{ or } 1 \text{ cm} :: 1, 2 ;; 2 or 1 cm :: 1, 2 ;; 5000, 6000 :: \$5k, \$6k ;; J :: J. Paris
\begin{pmatrix}1\\(2)\end{pmatrix} :: \begin{pmatrix}1\\2\end{pmatrix} ;; \frac{\pi}{2} :: \frac\pi2
\frac14 :: 2**(-2)  \sin^2 30^\circ ;; 9x^2 :: (3x)**2 ;; \frac12(a+b) :: 1/2 (a+b)
\frac{1}{\pi} :: \frac1\pi  \cfrac1\pi ;; A'\cap B :: B\cap A' :: A'\cup B ;; 1.\bar{3} :: \frac43
3-4i :: \bar{3+4i} ;; \sqrt{2} :: \\sqrt{2} ;; x\le3 :: x <= 3 ;; -52_8 :: :: -52_7
x^{\text{max}} :: x^\text{max} ;; x_{\text{max}} :: x_\text{max} ;; x_E+1 :: 1+x_{E}
f''(x) :: f″(x) ;; [1,2]\setminus\{2\} :: [1,2) ;; \{1,2\}\cap\{2,3\} :: \{2\}
(1,2)\cup(\sqrt5,3) :: (1,2)\cup(2.2360680,3) :: (1,2)\cup(2.236,3)
# equations: a letter is complex with i, or if it is z or w; a branch is not its curve
z=x+iy :: z-iy=x  y=\frac{z-x}{i} :: z=x-iy  z=y+ix  x=z+iy ;; ia=b :: a=-ib :: b=-ia  a=b
w=iz :: z=-iw :: w=-iz ;; a(2+i)=b :: a=\frac{b(2-i)}{5}  b=(2+i)a :: a=\frac{b(2+i)}{5}
z^3=1 :: z^3-1=0 :: z=1 ;; |z|=2 :: 2=|z| :: z=\pm2 ;; x^2+1=0 :: x=\pm i  x^2=-1 :: x=i  x=\pm 1
|z-i|=1 :: |i-z|=1 :: |z+i|=1 ;; |z|^2 :: :: z^2 ;; z=2i :: :: \bar{z}=2i
\sqrt{a^2+b^2} :: |a+bi| :: a+b ;; |x| :: \sqrt{x^2} :: x ;; Z=2+3i :: z=2+3i :: z=2-3i
x^3=8 :: :: x=2 ;; y^2=4x :: x=\frac{y^2}{4}  y=\pm2\sqrt{x}  4x-y^2=0 :: y=2\sqrt{x}  x^2=4y
y=\sqrt x :: \sqrt x=y :: x=y^2 ;; x^2+y^2=25 :: y=\pm\sqrt{25-x^2}  25-x^2=y^2 :: y=\sqrt{25-x^2}
y=\sqrt{25-x^2} :: :: x^2+y^2=25 ;; x^2=y^2 :: x=\pm y  (x-y)(x+y)=0 :: x=y  x=|y|
xy=0 :: :: x=0  y=0 ;; x^2=x :: x=0, x=1 :: x=1 ;; y=x^3 :: x=\sqrt[3]{y} :: y=x^2
y=e^x :: x=\ln y :: x=e^y ;; y=\sin x :: :: x=\arcsin y
\sin x=\frac12 :: 2\sin x=1 :: x=\frac\pi6 ;; \sin x=1 :: :: x=\frac{\pi}{2}
|x|=3 :: x=\pm3 :: x=3 ;; \frac1x+\frac1y=1 :: x+y=xy  y=\frac{x}{x-1} :: x+y=1
v^2=2gh :: h=\frac{v^2}{2g} :: v=\sqrt{2gh} ;; \log_2 x=3 :: x=8 :: x=9
\sqrt{x+1}=x-1 :: x=3 :: x^2-3x=0 ;; T=2\pi\sqrt{L/g} :: T=\frac{2\pi\sqrt{L}}{\sqrt g}
y>x^2 :: x^2<y :: y\ge x^2  \sqrt y>x ;; a<b :: a-b<0 :: a\le b  a^2<b^2
|x|<y :: -y<x<y :: |x|\le y ;; \frac{1}{x}<1 :: x<0 \text{ or } x>1 :: x>1  0<x<1
x\ne 3 :: (-\infty,3)\cup(3,\infty) :: x>3 ;; x\le3 :: :: x<3.5  x<3
\frac{x-1}{x+2}>0 :: x<-2 \text{ or } x>1 :: x>1 ;; (-\infty,a) :: x<a :: x\le a
\emptyset :: :: \{\emptyset\} ;; x\in[0,1] :: x∈[0,1]  [0,1] :: (0,1) ;; xy>0 :: -xy<0 :: x>0, y>0
f(x)>2 :: 2<f(x)  2f(x)>4 :: f(x)>3  f(x)\ge2  g(x)>2
-80\le g(x)\le82 :: 82\ge g(x)\ge-80 :: -80<g(x)\le82
(x,y)=(2,3) :: y=3, x=2  (2,3)  (y,x)=(3,2) :: 3,2  x=3,y=2  (y,x)=(2,3)  (a,b)=(2,3)  x=2
# commas in brackets, primes, bases, transposes
(1,234) :: (1, 234) :: 1234  1,234  (1234) ;; \{1,200\} :: 200, 1 :: 1200
1234 :: 1{,}234 :: (1,234)  [1,234] ;; x=1, y=200 :: (1,200)  1, 200 :: x=1,200  x=1200  200, 1
\sqrt{1,600} :: 40 ;; 2,000\pi :: 2000\pi :: (2,000\pi)
(2,500)\cup(600,\infty) :: :: (2500)\cup(600,\infty) ;; (10,100) :: :: 10{,}100
P(3,100) :: (3,100) :: 3100 ;; \omega_L' :: \omega'_L  \omega_L^{\prime} :: \omega_L  \omega_L''
x_1' :: x_1^{'} :: x_1  x' ;; y' :: y^\prime :: y ;; y''+y=0 :: y^{\prime\prime}=-y :: y'+y=0
A^T :: A^{\top} :: A  A^2 ;; A^TB :: A^\top B :: AB ;; 5! :: :: :: 5!!
1011_2 :: (1011)_2  {1011}_2 :: (1011)_8  1101_2 ;; (1011)_2 :: 1011_2  1011 :: 11
1ABC_{16} :: (1ABC)_{16} :: 1BAC_{16}  ABC_{16} ;; 1A_{16} :: :: A_{16}
# more than 4,300 digits, hyperbolic functions, arguments and exponents in braces and without
2^{20000} :: 4^{10000} :: 2^{20001} ;; 2000! :: 2000\cdot1999! :: 2001!
(x-a)^{6000} :: (a-x)^{6000} :: (x+a)^{6000}
\frac{1}{\cosh x} :: \sech x  \operatorname{sech} x  \text{sech}(x) :: \csch x
\sech^2 x :: \cosh^{-2} x :: \sech x ;; \frac{\cosh x}{\sinh x} :: \coth x :: \cot x
\frac{2}{x+1} :: \log_2{4}/(x+1) ;; \frac{\sin x}{x} :: \sin{x}/x
\sqrt[3]{2} :: 2^\frac13  2^\frac{1}{3} :: 2^\frac{2}{3} ;; e^{\sqrt2} :: e^\sqrt2 :: e^2
2^{-3} :: 2^-3 :: 2-3 ;; 2^{10} :: 2^\binom52 ;; \sqrt[3]8 :: 2 ;; \int\limits_0^1 x\,dx :: \frac12
\frac ab :: {a\over b}
# looks, and units
(0,1) :: \bigl(0,1\bigr)  \Big(0,1\Big) :: \bigl[0,1\bigr]
|x-1| :: \bigl|x-1\bigr|  \abs{x-1}  \lvert x-1\rvert
42 :: \texttt{42}  42{}  {}42  \mathnormal{42}  \phantom{x}42  \left.42\right. ;; [0,1) :: [0;1)
\{x\mid x>2\} :: \bigl\{x\bigm|x>2\bigr\} ;; x\le 3 :: x\leqq 3  x≦3 ;; x\ne 3 :: x\not=3
90^\circ :: 90º  90˚  90^{o} ;; A\cap B :: A∩B ;; 2\cdot3 :: 2∙3
9.8 :: 9.8\,\mathrm{m\,s^{-2}}  9.8\,\frac{\mathrm{m}}{\mathrm{s}^2}
    9.8\,\mathrm{\frac{m}{s^2}} :: :: 9.8\,\mathrm{10^3}
5 :: 5\,\mathrm{\mu F}  5\ \mu\mathrm{F}  5\,\mathrm{k\Omega}  5\,{\rm m}
    5\,\mathrm{J\,mol^{-1}\,K^{-1}} :: 5^2\,\mathrm{m}
42 :: 42元  ４２个  共42人  答案：42  42平方厘米 :: 42万  42或43 :: 42个半 ;; 1, 2 :: 1或2
# letters of other sizes and signs, each sign of its own, and all sides of a chain
|x-5| :: |5-x|  \sqrt{(x-5)^2} :: x-5  5-x ;; \lfloor\frac n3\rfloor :: :: \lfloor\frac n4\rfloor
|a+b| :: \sqrt{a^2+2ab+b^2} :: a+b ;; \max(x,5) :: \max(5,x) :: 5  x
1+i,1-i,-1+i,-1-i :: \pm1\pm i :: \pm1+i ;; (1,1),(-1,-1) :: (\pm1,\pm1) :: (\pm1,\mp1)
\pm\sqrt{2\pm\sqrt3} :: :: \sqrt{2+\sqrt3},-\sqrt{2-\sqrt3}
x\pm y\mp z :: x+y-z,x-y+z :: x+y,x-y+z
x=y=z=1 :: (1,1,1)  x=1,y=1,z=1 :: x=1 ;; a=b=c :: c=b=a :: a=c ;; C=6\pi :: C=2\pi r=6\pi :: C=6
\frac{x-1}{2}=\frac y5=\frac z4 :: \frac{x-1}{4}=\frac{y}{10}=\frac z8 :: \frac{x-1}{2}=\frac z4
a:b=2:3 :: 2:3  3a=2b :: b:a=2:3  3:2 ;; a:b:c=2:3:4 :: 2:3:4 :: 3:2:4
\{0\}\cup[1,\infty) :: x=0\text{ or }x\ge1 :: x\ge1 ;; 2\text{ 或 }3 :: 2或3 :: 2
\frac{1}{\sin30^\circ} :: 2 :: \frac12 ;; 2(\cos60^\circ+i\sin60^\circ) :: 1+\sqrt3 i :: 1-\sqrt3 i
36^\circ30' :: 36.5^\circ :: 30^\circ36'  66 ;; 2\text{ cm}^2 :: 2 :: 2\text{ in}^2
\frac12\overrightarrow{AB} :: \frac12\vec{AB} :: \frac12\overrightarrow{BA}
2^{\gcd(12,18)} :: 64 :: 2 ;; \text{infinitely many} :: Infinitely many :: infinite
2 :: :: :: \gcd(m,n)  \operatorname{lcm}(a,2)
1\text{ or }2 :: 2\text{ or }1 :: 13\text{ or }14 ;; 2,3 :: 3\text{ and }2 :: 2\text{ and }15
A=(1,2), B=(3,4) :: B=(3,4), A=(1,2) :: A=(3,4), B=(1,2) ;; A(1,2), B(3,4) :: :: A(3,4), B(1,2)
\text{Ann: }5, \text{Bob: }7 :: \text{Bob: }7, \text{Ann: }5 :: \text{Ann: }7, \text{Bob: }5
\$10,000.00 :: 10000 :: 10040 ;; 3600.0\text{ s} :: 3600.04 :: 3604 ;; 100.0x :: :: 100.4x
12.30 :: 12.3  12.304 :: 12.34 ;; \$150.00 :: 150 :: 150.04
5\text{ hours} :: :: 5\text{ Minutes}
500\text{ nm} :: :: 500\text{ m} ;; 5\text{ ms} :: :: 5\text{ m}
20\%\text{ increase} :: 20\% :: 20\%\text{ decrease} ;; 12\text{ March} :: :: 12\text{ April}
18\text{ dollars} :: 18\text{ more} :: 18\text{ cents} ;; 5\text{ profit} :: :: 5\text{ loss}
-2<x<3 :: x>-2\text{ and }x<3 :: x>-2\text{ or }x<3 ;; \sqrt x<3 :: 0\le x<9 :: x<9
\{0\}\cup(1,\infty) :: x>1\text{ or }x=0 :: x>1 ;; 1<x<2 :: x\in(1,2) :: x=1\text{ or }x=2
|x-1|+|x+1| :: :: 2|x| ;; \min(x,100) :: :: x ;; \lfloor\frac n7\rfloor :: :: \lfloor\frac n8\rfloor
2024-03-05 :: 2024-03-05 :: 2024-05-03  2016 ;; 10-15 :: :: 20-25 ;; A-C-B :: :: A-B-C
PDP^{-1} :: PDP^{-1} :: P^{-1}DP ;; 720,720 :: 720720 :: 720 ;; 13 :: :: :: 1+2+\ldots+10
1,2,3 :: 3,2,1 :: 1,2,3... ;; \phi :: \varphi ;; \frac ab=\frac cd :: ad=bc :: \frac cd
# products without a sign, roots of squares, vectors, means, names
12 :: (3)(4)  3(4)  (3)4  (2)(2)(3)  [3][4]  24(\frac12)  (24)\frac12 :: (7)(5)  12(1) + 1
141 :: :: \binom{10}{3}\binom{7}{2} ;; 2520 :: \binom{10}{3}\binom72  (120)(21)
6x+6 :: (x+1)(2)(3) :: (x+1)(2)(4) ;; 6 :: \text{Area}=\frac12(3)(4)=6  \frac{3(4)}{2} :: (3)+(4)
10-x :: 10-x :: \sqrt{x^2-20x+100} ;; \cos\frac x2 :: :: \sqrt{\frac{1+\cos x}{2}}
\frac x2 :: :: \arcsin(\sin\frac x2)  \arctan(\tan\frac x2) ;; e^{x^2} :: :: x^{2e}  |x|e^{x^3}
\vec a\times\vec b :: \mathbf{a}\times\mathbf{b} :: \vec b\times\vec a  \vec a\cdot\vec b
B^{-1}A^{-1} :: B^{-1}A^{-1} :: (BA)^{-1} ;; E(X^2) :: E[X^2] :: E(X)^2
\langle x^2\rangle :: \langle x^2\rangle :: \langle x\rangle^2 ;; N(0,1) :: (0,1) :: U(0,1)
P(A\mid B)=\frac13 :: \frac13  P(A|B)=\frac{2}{6}  p=\frac13 :: P(B\mid A)=\frac13  P(A)=\frac13
\operatorname{Re}(z)=2 :: 2 :: \operatorname{Im}(z)=2  z=2 ;; \dim V=3 :: 3 :: \dim W=3  \dim V=4
24 :: \frac{1}{2}\cdot(6)(8)  f(2)(3)=24 ;; \frac LT :: LT^{-1}
A=PDP^{-1} :: PDP^{-1}=A  PDP^{-1} ;; (AB)^T :: B^TA^T :: A^TB^T ;; 7 :: :: :: (2) 5
\vec a\cdot\vec b :: \vec b\cdot\vec a  \mathbf a\cdot\mathbf b :: \vec a\times\vec b
\max=5,\min=1 :: \min=1,\max=5 :: \max=1,\min=5 ;; \max=5 :: 5
\vec a\cdot\vec b=5 :: 5 ;; \vec{AB}\times\vec{AC} :: :: \vec{AC}\times\vec{AB}
q\vec v\times\vec B :: q(\vec v\times\vec B) :: q\vec B\times\vec v ;; c\vec{v}_1 :: \vec v_1c
\bm a_1\times\bm b_2 :: -\bm b_{2}\times\bm a_1 ;; \nabla\cdot\bm u :: :: \bm u\cdot\nabla
(\vec a\cdot\vec b)\vec c :: \vec c(\vec a\cdot\vec b) :: \vec a(\vec b\cdot\vec c)
x=a\text{ or }x=b :: x=a,b ;; y=\pm\frac34x :: y=\frac34x\text{ and }y=-\frac34x :: y=\frac34x
(2+\sqrt3)^{2^n} :: (\sqrt3+2)^{2^n} ;; \dim V=3 :: \dim(V)=3
\operatorname{Var}(X)=4 :: 4  \text{Var}(X)=4 :: E(X)=4  \operatorname{Var}(Y)=4
# and, or, sets in sets, curves that no point drawn is on
x\le1\text{ or }x\ge3 :: (-\infty,1]\cup[3,\infty) :: x\le1\text{ and }x\ge3
x=0\text{ or }y=0 :: y=0\text{ or }x=0 :: x=0\text{ and }y=0  x=0, y=0
x\ne1\text{ and }x\ne2 :: x\ne1, x\ne2 :: x\ne1\text{ or }x\ne2  x\ne1
x=1,y=2;x=2,y=1 :: x=2,y=1;x=1,y=2  (1,2)\text{ or }(2,1) :: x=1,y=1;x=2,y=2  x=1,y=2
x\in(1,2) :: (1,2)  1<x<2 :: 1,2  x=1,2  [1,2) ;; \{1,\{2\}\} :: \{\{2\},1\} :: \{1,2\}  \{\{1\},2\}
x^2+y^2=2x :: (x-1)^2+y^2=1 :: (x-1)^2+y^2=2 ;; x^2+y^2<2x :: (x-1)^2+y^2<1 :: 2x<x^2+y^2
5 :: :: 0\le|x|<3 ;; |x|<3 :: -3<x<3  0\le|x|<3 :: -1<|x|<2
# the same words and numbers in other phrases; units
3\text{ red}, 4\text{ blue} :: 4 blue, 3 red :: 4\text{ red}, 3\text{ blue}
2\text{ hours }5\text{ minutes} :: 2 hr 5 min  2\text{ hours and }5\text{ minutes}
    :: 2\text{ minutes }5\text{ hours}  2\text{ days }5\text{ hours}  2 min 5 h
2+\sqrt3\text{ cm} :: \sqrt3+2\text{ cm} ;; 16+8\sqrt3\text{ sq units} :: 8\sqrt3+16\text{ sq units}
1,2,\text{ or }3 :: 3,2,\text{ or }1
A=\{1,2\}, B=\{3,4\} :: B=\{3,4\}, A=\{1,2\} :: A=\{3,4\}, B=\{1,2\} ;; 5\text{ km} :: :: 5\,m  5~m
3, 5\text{ cm} :: 5, 3\text{ cm}
3\text{ up}, 2\text{ left} :: 2\text{ left}, 3\text{ up} :: 2\text{ up}, 3\text{ left}
A\text{ before }B :: A \text{ before } B :: B\text{ before }A ;; 5\text{ km} :: 5\,\mathrm{km}  5 km
30^\circ\text{ north of east} :: 30^\circ
    :: 30^\circ\text{ south of east}  30^\circ\text{ east of north}
3\text{ left} :: 3 :: 3\text{ up} ;; 45^\circ :: 45\text{ degrees}  45 :: 45\text{ radians}
5\text{ kJ} :: 5\text{ kilojoules}  5 :: 5\text{ J}  5\,\mathrm{MJ} ;; 5\text{ mW} :: :: 5\text{ MW}
5\text{ J} :: 5\text{ N m} ;; 3.2\text{ nm} :: 3.2 nanometers :: 3.2\text{ pm}
3\text{ euros} :: 3 :: 3\text{ cents} ;; xyz(w+1) :: (w+1)xyz ;; 0.3 :: :: :: 0.3\text{ recurring}
5 :: :: 5\text{ quadrillion} :: 5\text{ (rejected)}  5\text{ sixteenths}
"""
NUMBER = r"""
10 :: 10. ;; 1000 :: 1,000  1\,000  1,\!000  1{,}000  1'000  1e3  1E3 :: :: 1_000 ;; 5 :: +5  10/2
18 :: $18.00  \$18  \text{\$}18  18 eggs.  18 \text{ eggs}  18\qquad eggs  18\%  018  \text{18}
    US$18  US\$18  USD 18  Rs. 18  ₹18  EUR 18  GBP 18  INR 18  18 USD  １８  $\$18$ :: 19  180  1.8
    :: 18 or 19  18, 19  17 + 1  18-19  eighteen  0x12  ١٨  18-20 eggs ;; 0.5 :: .5  ½ :: 0.501
-5 :: -$5  −5  –5  ‐5  ‑5  ‒5  —5  ―5 :: 5 ;; 0 :: 0/5 :: :: -  .  inf  nan ;; 0.3333333333 :: 1/3
0.75 :: 3/4  \frac{3}{4}  \dfrac{3}{4}  \tfrac{3}{4}  \cfrac{3}{4}  0.5 \times 1.5 = 0.75 :: -3/4
1 :: :: :: 1/0  1/00 ;; 20000000 :: 2 crore ;; 35 :: :: :: 3,5 ;; -1.5 :: -1 1/2 ;; 24 :: 2 dozen
9007199254740992 :: :: 9007199254740993 ;; 3000000000 :: 3B  $3bn ;; 1.234567 :: :: :: 1.234,567
1.5 :: 1\frac{1}{2}  1 1/2 cups  \frac{3}{2}  1.50 :: 11/2  1.5 million ;; 5 :: 5 PM ;; 8 :: :: -$8
3.5 :: 3½  $3.50 per pound  $3.50 a dozen  3.5 (nearest tenth) ;; 0.0 :: :: 0.004
-0.5 :: \frac{-1}{2}  -\frac12  \frac{1}{-2} ;; 5000 :: 5\text{k}  5千元  5E+3  5 x 10^3
3000000 :: 3 millions  3 Million  3,000,000  3 \times 10^{6} :: 3  3 billion ;; 5 PM :: :: 5 AM
0.5 \times 2.469 = 1.2345 :: :: 1.235 ;; 200000 :: 2 hundred thousand ;; 0.025 :: 2.5 \times 10^{-2}
3 :: :: 3 million :: 3 and a half  3 point five  3 or four  3²  3 thirds  3 halves  3 quarters
    3 fourths  3 fifths  3 tenths  3 hundredths  3 thousandths  3 squared  3 cubed  3i ;; 2 :: 2 m²
2000000000000 :: $2T  2 trillion  $2tn ;; 3 :: x \approx 3  x≈3  6÷2 = 3 ;; 1.2 :: 1.2 m  1.2m
42 :: The total number of all the apples in the basket is 42  x=42  42 = x  \text{Total cost} = \$42
    6 \times 7 = 42  x = 0.5 \cdot (80 + 4) = 42  The answer is 42.  42^{\circ}\text{C}
    42\text{ m}^2  42\text{.}  42;  \left(42\right)  42 \text{ km/h}  84/2  $42/day
    \$42/\text{hour}  (42)  42 T-shirts  42-year-old  42 kids'  42 (eggs)  42/hr  42-ish  42 K
    42 J/K  42 K gold  Total: 42  **42** eggs  *42*  _42_  42 \mathrm{cm}  42 kg*m  + 42
    42 \operatorname{cm}  42 m^-1  x = 4.2 \times 10^1 :: -42  42k  42/2 :: It is not 42.  42 or 43
    42 (or 43)  42-43  42-and-a-half ;; 12 :: 12.0  n = 3, so 4n = 12 :: 12.00001  12:30
    :: x = 3, y = 12  x = 3 or x = 12  a dozen ;; 500000 :: 5 lakh
43 :: :: :: 6 \times 7 = 43  42 = 43  6 \div 2 = 43  6÷2 = 43 ;; 1500000 :: $1.5mn  1.5 mn :: 1.5 bn
70000 :: $70k  70K  70 thousand  70,000 :: 70 km  70 K ;; 1200000 :: 1.2M  $1.2 million  $1.2m
5000000 :: \$5\text{M} :: 5\text{M} ;; 10:30:15 :: 10:30:15 AM :: 10:30:16 ;; 100000 :: 1,00,000
0.3 :: 0.30000000000000004 ;; 3.14 :: 3.14159 :: 3.15 ;; \frac13 :: 0.333333 :: 0.33333
5 PM :: 5 p. m. ;; 1e9 :: 1 billion  10^9  10^{9}  x = 10^9 ;; 20000 :: 2万
3/10 :: 0.30000000000000004 :: 0.30000000001 ;; 1 :: .5 \times 2 = 1 :: 2 :: 10^{100}
42 :: 42元  ４２个  ＃４２  42 千克 :: 42万  42萬 :: 42个半 ;; 5\times10^{12} :: 5 trillion
1,234.50 :: 1234.5 :: 1234.9  1234.54 ;; 15 minutes :: :: 15 Hours ;; 12 noon :: :: 12 midnight
5 :: :: 17  5k people :: 5 eighths  5 factorial  10 below  5x  5 more than x  5π  5 and up  5以上
    x >= 5  x != 5  Not: 5  5 (wrong)  ~~5~~ ;; 1,000,050.25 :: :: 1000400 ;; 3000000000 :: $3b  $3B
"""
# also behind a minus sign, a dash or a currency, and as full-width digits
LAST_NUMBER = r"""
-1,234.5 :: 5 - 3 = 2, so it is -1,234.5! ;; -5 :: The answer is −5. ;; -.25 :: about -.25!
9 :: from 7–9 ;; 1e3 :: 1e3 ;; 2E+3 :: 2E+3, I think ;; 5 :: 5, I think  5 m², 5 m^2 or 5 m^{2}
1 000 :: It is 1 000. ;; NA :: v2 or x^5 ;; 3 :: f(5)-3 ;; 1.2 :: v2 or 1.2.3
-8 :: It is -$8.  So −\$8.  -£8!  a －８.
"""
CHOICE = r"""
B :: B  (B)  B.  B) 12  (B) 12  B: 12  \text{(B)}  \textbf{B}  \textbf{(B)}\ 12  {B}  (b)  b.  [B]
    "B"  b. london  \operatorname{B}  B Paris  B 12  B - Paris  B. Vitamin C.  B. U.S.A.  B is right
    B. C: the speed  B. Brand C: blue  B.5  [B] Paris  <B>  ## B  _B_  B ✓  B ✅  \bold{B}  'B'
    The answer is option B  (\text{B})  My final answer is B  The right option is B  Best choice: B
    \Large B  B (Paris)  \text{Option B}  The correct answer is (B).  Ｂ  （B）  Ⓑ  𝐁  B．Paris
    B – Paris  “B”  B：Paris :: C  (A)  A) B  Answer: C  (a)  12 :: A and B  BC  none  Б  В  Because
    A or B  B and C  A. B.  B = 5  B_{12}  B'  \cancel{B}  \mu B  B, maybe C  B (no, C)
    (B) is wrong  (B) + (C)  B (cat) D (dog)  B - cat D - dog ;; D :: D) Both A and B :: :: D.C.  D#
A :: A. London :: :: A or B  A, B  (A) or (B)  A. or B.  (A), (C)  A dog  A/B  A & B  A; B  A|B  A B
    A OR B  A. x AND B.  A Dog  [A] Paris and [B]  A. Paris, B: London  A. B.  A) B) C)
    (A) 5, (B) 6  A. Paris or B. London  either A or B  A (Paris), B (London)  A (and B)
3 :: (d) 12  3  (3)  3. Paris :: B  2  4  (2) ;; (b) :: :: C ;; 0 :: A ;; Z :: Z. mays
B :: B. f(x, y) = 2  B. 3 m/s.  B. the U.S. or U.K.  B. Q = (K, L)  B. Vitamins A, D.  B. R&D
    B. Hepatitis A or B.  B. (a) and (b)  B. type O, A.  B. e.g. a) or b)  B. A and C  B. [0, 1)
    B. A. Einstein  B. C. elegans  B, which is Paris  B) Washington, D.C.  B. 1/e.  B、巴黎  选B
    【B】  「B」  答案：B  故选B  B选项 :: :: B. Paris C. London  B) cat C) dog  (B) 3 (C) 4
    B: cat. C: dog.  B. 3 or C  B -> C  B. 12\\C. 13  B. cat (C) dog  B、C  B或C  B or C, I think
D :: D) Both (A) and (B)  D. A, B and C  D. None of A, B, C  D. Both A and B.
2 :: :: :: 2.5  2:30 ;; 26 :: :: :: B ;; 12 :: 12  (12)  M  12. On 3. May :: L :: 12. x 13. y
"""

# Countdown: each number once, and nothing but + - * / and parentheses.
COUNTDOWN = r"""
3 9 5 : 48 :: 3+9*5  (5*9)+3  ((3)+((9)*(5)))  3 + 9 * 5 :: 48  3+45  3+9*5+3-3  9*5+3*9/9  3+9*5+0
    3+9*05  3*9+5  (3+9)*5  3+9*5==48  (x:=3+9*5)  3+9*5=48  ()  NA  3 9 5  3+9*  (3+9*5  3+9*5)
    )3+9*5(  3+(9)(5)  3+9(5)  3(9*5)  3*(9,5)  3+9*5,  [3+9*5][0]  3+9*5 # = 48  3+9*5;  x+9*5
    3+9*5 if 1 else 0  lambda:48  __import__('os').getpid()  exec('3+9*5')  '3'+'9'  0x3+9*5  03+9*5
    ３+９*５  ٣+٩*٥  3+9×5  ((((((((((((((((((((((((((3+9*5  9**9**9**9**9 ;; 3 9 5 : 45 :: :: 5*9
3 5 9 : 1 :: 9-5-3 :: 5/9*3 ;; 1 1 1 3 4 : 12 :: 1/(1/3-1/4) ;; 3 3 5 : 5 :: :: 5/(3-3)
1 5 2 : 3 :: :: 1.5*2 ;; 1 3 100000000000000000 : 33333333333333332 :: :: 100000000000000000/3*1
2 3 : 8 :: :: 2**3  2 ** 3 ;; 3 5 : 2 :: :: 5%3  -3+5 ;; 3 5 : 8 :: :: +3+5  5--3  5-(-3)
3 5 : 1 :: :: ~3+5  3<5 ;; 1 2 : 3 :: :: True+2 ;; 16 : 16 :: :: 0x10 ;; 10 : 10 :: :: 1_0  1e1
3 9 : -6 :: :: 3−9
"""
