package rawtensor

import "math"

// Convert converts one element, by the definition of the conversion.
func Convert(to, from int, bits uint64) uint64 {
	if IsFloat(from) {
		v := Decode(from, bits)
		switch {
		case to == Bool:
			if v != 0 {
				return 1
			}
			return 0
		case IsFloat(to):
			return Encode(to, v)
		}
		v = math.Trunc(v)
		switch {
		case to == Int32 && v >= -0x1p31 && v < 0x1p31, to != Int32 && v >= -0x1p63 && v < 0x1p63:
			return uint64(int64(v))
		case to == Int32:
			return 1 << 31
		case to == Uint64 && v >= 0x1p63 && v < 0x1p64:
			return uint64(v)
		}
		return 1 << 63
	}
	if from == Uint64 && int64(bits) < 0 && IsFloat(to) {
		if to == Float64 {
			return math.Float64bits(float64(bits))
		}
		return Encode(to, float64(float32(bits)))
	}
	v := integer(from, bits)
	if from == Bool {
		v = min(v, 1)
	}
	switch {
	case to == Bool:
		if v != 0 {
			return 1
		}
		return 0
	case IsFloat(to) && to != Float64:
		return Encode(to, float64(float32(v)))
	case to == Float64:
		return math.Float64bits(float64(v))
	}
	return uint64(v)
}

func Mask(dtype int, bits uint64) uint64 {
	return bits & (1<<(8*Size(dtype)-1)<<1 - 1)
}

// integer returns the integer with the given bits in a dtype; of uint64 the bits.
func integer(dtype int, bits uint64) int64 {
	unused := 64 - 8*Size(dtype)
	switch dtype {
	case Int8, Int16, Int32:
		return int64(bits<<unused) >> unused
	}
	return int64(bits << unused >> unused)
}

// Wrap returns v as integers of a dtype store it.
func Wrap(dtype int, v int64) float64 {
	if dtype == Uint64 {
		return float64(uint64(v))
	}
	return float64(integer(dtype, uint64(v)))
}
