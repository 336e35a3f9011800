// Package safetensors reads and writes files of named tensors in the safetensors format: eight bytes with the length of a
// JSON header, the header, and the tensors' bytes one after the other.
//
// A file is read through a memory map and checked completely when it is opened, so that a corrupt or hostile one gives an
// error that says where, and never a wrong tensor. A file is written beside its target and renamed over it, so that a
// reader sees the old one or the new one.
package safetensors

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"math/bits"
	"strings"
)

// MaxHeaderBytes is the longest header that the format allows.
const MaxHeaderBytes = 100_000_000

const (
	lengthBytes = 8              // before the header: its length, little endian
	metadataKey = "__metadata__" // the header's one key that is not a tensor
	maxShown    = 64             // characters of a file's own text that an error repeats
)

// DType is an element type as files spell it.
type DType string

// The element types of the format.
const (
	BOOL    DType = "BOOL"
	U8      DType = "U8"
	I8      DType = "I8"
	U16     DType = "U16"
	I16     DType = "I16"
	U32     DType = "U32"
	I32     DType = "I32"
	U64     DType = "U64"
	I64     DType = "I64"
	F4      DType = "F4"
	F6_E2M3 DType = "F6_E2M3"
	F6_E3M2 DType = "F6_E3M2"
	F8_E4M3 DType = "F8_E4M3"
	F8_E5M2 DType = "F8_E5M2"
	F8_E8M0 DType = "F8_E8M0"
	F16     DType = "F16"
	BF16    DType = "BF16"
	F32     DType = "F32"
	F64     DType = "F64"
	C64     DType = "C64"
)

// Bits returns the width of one element, or 0 for a name that is no element type.
func (d DType) Bits() int {
	switch d {
	case F4:
		return 4
	case F6_E2M3, F6_E3M2:
		return 6
	case BOOL, U8, I8, F8_E4M3, F8_E5M2, F8_E8M0:
		return 8
	case U16, I16, F16, BF16:
		return 16
	case U32, I32, F32:
		return 32
	case U64, I64, F64, C64:
		return 64
	}
	return 0
}

// Info describes a tensor of a file.
type Info struct {
	Name  string
	DType DType
	Shape []int64
	// Begin and End bound the tensor's bytes, counted from the end of the header.
	Begin, End int64
}

// FormatError says what is wrong with a file, and where.
type FormatError struct {
	Path   string // "" for bytes in memory
	Tensor string // the tensor at fault, or ""
	Offset int64  // the place in the file, in bytes
	Reason string
}

func (e *FormatError) Error() string {
	var b strings.Builder
	b.WriteString("safetensors: ")
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	if e.Tensor != "" {
		fmt.Fprintf(&b, "tensor %s: ", quote(e.Tensor))
	}
	fmt.Fprintf(&b, "%s (at byte %d)", e.Reason, e.Offset)
	return b.String()
}

// As makes core.KindOf see a value error.
func (e *FormatError) As(target any) bool {
	p, ok := target.(**core.Error)
	if ok {
		*p = &core.Error{Kind: core.ValueError, Op: format, Msg: strings.TrimPrefix(e.Error(), format+": "), Err: e}
	}
	return ok
}

// format names this package in its errors.
const format = "safetensors"

// byteCount returns the bytes of a tensor. Zero dimensions do not excuse the others: their product must fit too, because
// strides are made of it.
func byteCount(dtype DType, shape []int64) (int64, error) {
	width := dtype.Bits()
	if width == 0 {
		return 0, fmt.Errorf("unknown dtype %s", quote(string(dtype)))
	}
	product, empty := uint64(1), false
	for _, d := range shape {
		if d < 0 {
			return 0, fmt.Errorf("negative dimension in shape %s", showShape(shape))
		}
		if d == 0 {
			empty = true
			continue
		}
		hi, lo := bits.Mul64(product, uint64(d))
		if hi != 0 || lo > 1<<60 {
			return 0, fmt.Errorf("shape %s holds too many elements", showShape(shape))
		}
		product = lo
	}
	if empty {
		return 0, nil
	}
	hi, total := bits.Mul64(product, uint64(width))
	if hi != 0 || total > 1<<63-1 {
		return 0, fmt.Errorf("shape %s of %s holds too many bytes", showShape(shape), dtype)
	}
	if total%8 != 0 {
		return 0, fmt.Errorf("shape %s of %s does not fill whole bytes", showShape(shape), dtype)
	}
	return int64(total / 8), nil
}

// quote and showShape keep a hostile file's text from flooding an error.
func quote(s string) string {
	if len(s) > maxShown {
		return fmt.Sprintf("%q...", s[:maxShown])
	}
	return fmt.Sprintf("%q", s)
}

func showShape(shape []int64) string {
	if len(shape) > maxShown/4 {
		return fmt.Sprintf("%d... (%d dimensions)", shape[:maxShown/4], len(shape))
	}
	return fmt.Sprint(shape)
}
