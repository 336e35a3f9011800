package core

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBroadcast(t *testing.T) {
	s, err := Broadcast("add", []int{3, 1, 5}, []int{4, 1}, []int{})
	require.NoError(t, err)
	require.Equal(t, []int{3, 4, 5}, s)
	s, err = Broadcast("add", []int{0, 3}, []int{1, 1})
	require.NoError(t, err)
	require.Equal(t, []int{0, 3}, s)
	_, err = Broadcast("add", []int{2, 3}, []int{2, 4})
	require.EqualError(t, err, "add: shapes [[2 3] [2 4]] do not broadcast: sizes 3 and 4 at dimension 1")
	kind, ok := KindOf(err)
	require.True(t, ok)
	require.Equal(t, ShapeError, kind)
	require.Equal(t, []int{0, 1, 0}, ExpandStrides([]int{3, 1}, []int{1, 1}, []int{2, 3, 4}))
}

func TestCheckShape(t *testing.T) {
	_, err := CheckShape("zeros", []int{1 << 40, 1 << 40}, Float32)
	require.ErrorContains(t, err, "larger than the address space")
	_, err = CheckShape("zeros", []int{-1}, Float32)
	require.ErrorContains(t, err, "negative")
	_, err = CheckShape("zeros", make([]int, 13), Float32)
	require.ErrorContains(t, err, "at most 12")
	_, err = CheckShape("zeros", []int{1 << 40, 1 << 40, 0}, Float32)
	require.Error(t, err, "its strides would overflow")
	n, err := CheckShape("zeros", []int{1 << 40, 0, 7}, Float32)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestWrapDims(t *testing.T) {
	d, err := WrapDims("sum", []int{-1, 0}, 3)
	require.NoError(t, err)
	require.Equal(t, []int{0, 2}, d)
	_, err = WrapDims("sum", []int{0, -3}, 3)
	require.ErrorContains(t, err, "appears twice")
	_, err = WrapDims("sum", []int{3}, 3)
	require.EqualError(t, err, "sum: dimension 3 out of range, want [-3, 2]")
	d, err = WrapDims("sum", []int{-1}, 0)
	require.NoError(t, err)
	require.Empty(t, d)
}

// FuzzBroadcast compares Broadcast with the definition, element by element.
func FuzzBroadcast(f *testing.F) {
	f.Add([]byte{1, 2, 3}, []byte{2, 1})
	f.Add([]byte{}, []byte{0})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		toShape := func(raw []byte) []int {
			s := []int{}
			for _, x := range raw[:min(len(raw), 5)] {
				s = append(s, int(x%4))
			}
			return s
		}
		x, y := toShape(a), toShape(b)
		got, err := Broadcast("op", x, y)
		n := max(len(x), len(y))
		want, fits := make([]int, n), true
		for i := range n {
			at := func(s []int) int {
				if j := i - (n - len(s)); j >= 0 {
					return s[j]
				}
				return 1
			}
			switch p, q := at(x), at(y); {
			case p == q || q == 1:
				want[i] = p
			case p == 1:
				want[i] = q
			default:
				fits = false
			}
		}
		if fits != (err == nil) || fits && !slices.Equal(got, want) {
			t.Fatalf("%v and %v: got %v, %v, want %v", x, y, got, err, want)
		}
	})
}
