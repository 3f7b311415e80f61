/* C99's functions of complex numbers that Wine's C runtime lists and does not have: NumPy's extension modules import them, and
 * the first call ends the process. Built and put in its place by libraries.py beside this file.
 *
 * Microsoft's ABI: a complex number is a structure of two numbers, and long double is double. The equations are those of
 * textbooks, without C99's table of infinities and NaN (annex G): tests of complex numbers do not run under Wine.
 */

#define IMPORT __declspec(dllimport)

typedef struct { double re, im; } complex_double;
typedef struct { float re, im; } complex_float;

IMPORT double atan2(double, double), cos(double), cosh(double), exp(double), hypot(double, double), log(double), sin(double),
    sinh(double);

int _fltused; /* the compiler asks for it where numbers are floats */

static complex_double made(double re, double im) { complex_double z = {re, im}; return z; }

static complex_double power_of_e(complex_double z) { return made(exp(z.re) * cos(z.im), exp(z.re) * sin(z.im)); }

static complex_double power(complex_double x, complex_double y) {
    double size = hypot(x.re, x.im), angle = atan2(x.im, x.re);
    if (size == 0) return made(y.re == 0 && y.im == 0, 0);
    return power_of_e(made(y.re * log(size) - y.im * angle, y.im * log(size) + y.re * angle));
}

static complex_double sine(complex_double z) { return made(sin(z.re) * cosh(z.im), cos(z.re) * sinh(z.im)); }
static complex_double cosine(complex_double z) { return made(cos(z.re) * cosh(z.im), -sin(z.re) * sinh(z.im)); }
static complex_double turned(complex_double z) { return made(-z.im, z.re); }
static complex_double back(complex_double z) { return made(z.im, -z.re); }

static complex_double hyperbolic_sine(complex_double z) { return back(sine(turned(z))); } /* sinh z = -i sin iz */
static complex_double hyperbolic_cosine(complex_double z) { return cosine(turned(z)); }

static complex_double tangent(complex_double z) { /* (sin 2x + i sinh 2y) / (cos 2x + cosh 2y) */
    double below = cos(2 * z.re) + cosh(2 * z.im);
    return made(sin(2 * z.re) / below, sinh(2 * z.im) / below);
}

static complex_double hyperbolic_tangent(complex_double z) { return back(tangent(turned(z))); }

#define NUMBER(name, suffix, real, type, value) real name##suffix(type z) { return (real)(value); }
#define OF_ONE(name, suffix, type, function) \
    type name##suffix(type z) { complex_double w = function(made(z.re, z.im)); type r = {w.re, w.im}; return r; }
#define ALL(suffix, real, type) \
    NUMBER(creal, suffix, real, type, z.re) \
    NUMBER(cimag, suffix, real, type, z.im) \
    NUMBER(cabs, suffix, real, type, hypot(z.re, z.im)) \
    NUMBER(carg, suffix, real, type, atan2(z.im, z.re)) \
    OF_ONE(cexp, suffix, type, power_of_e) \
    OF_ONE(csin, suffix, type, sine) \
    OF_ONE(ccos, suffix, type, cosine) \
    OF_ONE(ctan, suffix, type, tangent) \
    OF_ONE(csinh, suffix, type, hyperbolic_sine) \
    OF_ONE(ccosh, suffix, type, hyperbolic_cosine) \
    OF_ONE(ctanh, suffix, type, hyperbolic_tangent) \
    type cpow##suffix(type x, type y) { \
        complex_double w = power(made(x.re, x.im), made(y.re, y.im)); \
        type r = {w.re, w.im}; \
        return r; \
    }

ALL(, double, complex_double)
ALL(f, float, complex_float)
ALL(l, double, complex_double)
