package core

import "math"

// Float16Bits returns x rounded to float16 (nearest even), as its bits.
func Float16Bits(x float32) uint16 {
	u := math.Float32bits(x)
	sign, a := uint16(u>>16)&0x8000, u&0x7fffffff
	switch {
	case a > 0x7f800000:
		return sign | 0x7e00
	case a >= 0x477ff000:
		return sign | 0x7c00
	case a < 0x38800000: // subnormal: adding 0.5 aligns the mantissa so that the addition itself rounds
		return sign | uint16(math.Float32bits(math.Float32frombits(a)+0.5)-0x3f000000)
	}
	return sign | uint16((a-0x38000000+0xfff+a>>13&1)>>13)
}

// Float16Value returns the value of the float16 with the given bits.
func Float16Value(h uint16) float32 {
	magnitude := uint32(h&0x7fff) << 13
	bits := math.Float32bits(math.Float32frombits(magnitude) * 0x1p112)
	if h&0x7c00 == 0x7c00 {
		bits = magnitude | 0x7f800000
	}
	return math.Float32frombits(bits | uint32(h&0x8000)<<16)
}

// BFloat16Bits returns x rounded to bfloat16 (nearest even), as its bits.
func BFloat16Bits(x float32) uint16 {
	u := math.Float32bits(x)
	if u&0x7fffffff > 0x7f800000 {
		return uint16(u>>16) | 0x40
	}
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

// BFloat16Value returns the value of the bfloat16 with the given bits.
func BFloat16Value(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
