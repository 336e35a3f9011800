package op

import "strings"

// Formulas of functions of complex numbers, as text for [Elementwise.overComplex]. They keep their accuracy where the usual ones lose it to
// cancellation, overflow or the choice of a branch.

// complexQuotient assigns the parts of (a + ib)/(c + id) to qr and qi, by Smith's method.
// Reference: Smith, "Algorithm 116: complex division" (1962).
func complexQuotient(a, b, c, d string) string {
	return strings.NewReplacer("$a", a, "$b", b, "$c", c, "$d", d).Replace(
		"w = abs($c) >= abs($d); u = where(w, $c, $d); v = where(w, $d, $c); k = where(u == 0, 0, v/u); n = u + v*k; " +
			"qr = where(w, $a + $b*k, $a*k + $b)/n; qi = where(w, $b - $a*k, $b*k - $a)/n; ")
}

// complexExp returns the parts of e^(a + ib). A real number keeps its imaginary part of 0 where the exponential overflows.
func complexExp(a, b string) string {
	return strings.NewReplacer("$a", a, "$b", b).Replace("e = exp($a); e*cos($b), where($b == 0, $b, e*sin($b))")
}

// complexLog1p assigns the parts of log(1 + x + iy) to a and b.
func complexLog1p(x, y string) string {
	return strings.NewReplacer("$x", x, "$y", y).Replace(
		"lr = hypot($x + 1, $y); ld = $x*(2 + $x) + $y*$y; a = where(lr < 2 && lr > 0.5, 0.5*log1p(ld), log(lr)); b = atan2($y, $x + 1); ")
}

// complexLogAddExp returns the parts of log(e^x + e^y): those of the number with the larger real part, of the first where they are equal,
// and of log(1 + w) with an absolute value of w of at most 1. So the imaginary part is within pi/2 of that number's.
func complexLogAddExp() string {
	return "l = xr < yr; mr = where(l, yr, xr); mi = where(l, yi, xi); nr = where(l, xr, yr); ni = where(l, xi, yi); " +
		"e = where(mr == nr, 1, exp(nr - mr)); u = where(e == 0, 0, e*cos(ni - mi)); v = where(e == 0, 0, e*sin(ni - mi)); " +
		complexLog1p("u", "v") + "lost = isnan(xr) || isnan(xi) || isnan(yr) || isnan(yi); " +
		"where(lost, nan, mr + a), where(lost, nan, where(mr == -inf, ni, mi + b))"
}

// complexSinc returns the parts of sin(pi*z)/(pi*z) for z = x + iy, and 1 at 0.
func complexSinc(x, y string) string {
	return "p = pi*" + x + "; q = pi*" + y + "; " + complexQuotient("(sin(p)*cosh(q))", "(cos(p)*sinh(q))", "p", "q") +
		"z = p == 0 && q == 0; where(z, 1, qr), where(z, 0, qi)"
}

// root assigns the parts of the square root of a + ib, whose real part is not negative, to names that begin with name.
func root(name, a, b string) string {
	return strings.NewReplacer("@", name, "$a", a, "$b", b).Replace(
		"@a = $a; @b = $b; @h = sqrt(0.5*(abs(@a) + hypot(@a, @b))); @k = where(@h == 0, 0, 0.5*@b/@h); " +
			"@re = where(@a >= 0, @h, abs(@k)); @im = where(@a >= 0, where(@h == 0, @b, @k), copysign(@h, @b)); ")
}

// complexTanh assigns the parts of tanh(x + iy) to a and b.
func complexTanh(x, y string) string {
	return strings.NewReplacer("$x", x, "$y", y).Replace(
		"tx = $x; ty = $y; ts = sinh(min(max(tx, -20), 20)); tc = cos(ty); tn = tc*tc + ts*ts; " +
			"a = where(abs(tx) > 20, sign(tx), ts*sqrt(1 + ts*ts)/tn); " +
			"b = where(abs(tx) > 20, 4*sin(ty)*tc*exp(-2*abs(tx)), sin(ty)*tc/tn); ")
}

// complexAsin assigns the parts of the inverse sine of x + iy to a and b.
// Reference: Kahan, "Branch cuts for complex elementary functions" (1987).
func complexAsin(x, y string) string {
	return root("p", "1 - ("+x+")", "-("+y+")") + root("q", "1 + ("+x+")", y) +
		"a = atan2(" + x + ", pre*qre - pim*qim); b = asinh(pre*qim - pim*qre); "
}

// complexAtanh assigns the parts of the inverse hyperbolic tangent of x + iy to a and b. It is computed for the absolute value of x, since
// the logarithm cancels for negative ones, and for large numbers by what it tends to.
func complexAtanh(x, y string) string {
	return strings.NewReplacer("$x", x, "$y", y).Replace(
		"ax = $x; ay = $y; am = abs(ax); large = max(am, abs(ay)) > 1e8; an = (1 - am)*(1 - am) + ay*ay; ah = hypot(ax, ay); " +
			"a = where(large, where(isinf(ah), 0*sign(ax), ax/ah/ah), copysign(0.25*log1p(4*am/an), ax)); " +
			"b = where(large, copysign(0.5*pi, ay), 0.5*atan2(2*ay, (1 - ax)*(1 + ax) - ay*ay)); ")
}

// complexSigmoid assigns the parts of 1/(1 + e^-(x + iy)) to sr and si, by the exponential that does not overflow.
func complexSigmoid(x, y string) string {
	return strings.NewReplacer("$x", x, "$y", y).Replace(
		"e = exp(-abs($x)); wr = e*cos($y); wi = where($x < 0, 1, -1)*e*sin($y); d = (1 + wr)*(1 + wr) + wi*wi; " +
			"sr = where($x < 0, wr*(1 + wr) + wi*wi, 1 + wr)/d; si = where($x < 0, wi, -wi)/d; ")
}
