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
		}
		return 1 << 63
	}
	v := int64(bits)
	switch from {
	case Bool:
		v = min(v, 1)
	case Int32:
		v = int64(int32(bits))
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
