package data

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func numbers(n int) Slice[int] {
	s := make(Slice[int], n)
	for i := range s {
		s[i] = i
	}
	return s
}

func contents[T any](t *testing.T, d Dataset[T]) []T {
	t.Helper()
	var all []T
	for i := range d.Len() {
		v, err := d.At(i)
		require.NoError(t, err)
		all = append(all, v)
	}
	return all
}

func TestCombinedDatasets(t *testing.T) {
	concat, err := Concat[int](numbers(3), numbers(0), Slice[int]{7, 8}, numbers(0))
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 2, 7, 8}, contents(t, concat))

	subset, err := Subset(concat, []int{4, 0, 4})
	require.NoError(t, err)
	require.Equal(t, []int{8, 0, 8}, contents(t, subset))

	text := Map(subset, func(i int) (string, error) { return strconv.Itoa(i), nil })
	require.Equal(t, []string{"8", "0", "8"}, contents(t, text))

	for _, d := range []Dataset[int]{concat, subset, numbers(2)} {
		for _, i := range []int{-1, d.Len()} {
			_, err := d.At(i)
			require.ErrorContains(t, err, fmt.Sprintf("index out of range, got %d, want 0 to %d", i, d.Len()-1))
		}
	}
	_, err = Concat[int]()
	require.ErrorContains(t, err, "no datasets")
	_, err = Subset[int](numbers(3), []int{0, 3})
	require.ErrorContains(t, err, "got 3, want 0 to 2")
}

func TestMapPassesErrorsOn(t *testing.T) {
	broken := errors.New("broken")
	d := Map(numbers(2), func(i int) (int, error) { return i, broken })
	_, err := d.At(1)
	require.ErrorIs(t, err, broken)
	subset, err := Subset(d, []int{1})
	require.NoError(t, err)
	_, err = Map(subset, func(i int) (int, error) { return i, nil }).At(0)
	require.ErrorIs(t, err, broken)
}

func TestRandomSplit(t *testing.T) {
	parts, err := RandomSplit(numbers(100), []int{70, 0, 30}, 5)
	require.NoError(t, err)
	require.Len(t, parts, 3)
	var all []int
	for i, want := range []int{70, 0, 30} {
		require.Equal(t, want, parts[i].Len())
		all = append(all, contents(t, parts[i])...)
	}
	require.False(t, slices.IsSorted(all))
	slices.Sort(all)
	require.Equal(t, []int(numbers(100)), all)

	again, err := RandomSplit(numbers(100), []int{70, 0, 30}, 5)
	require.NoError(t, err)
	require.Equal(t, contents(t, parts[0]), contents(t, again[0]))
	other, err := RandomSplit(numbers(100), []int{70, 0, 30}, 6)
	require.NoError(t, err)
	require.NotEqual(t, contents(t, parts[0]), contents(t, other[0]))

	_, err = RandomSplit(numbers(10), []int{5, 4}, 0)
	require.ErrorContains(t, err, "got 9, want 10")
	_, err = RandomSplit(numbers(10), []int{11, -1}, 0)
	require.ErrorContains(t, err, "negative length")
}

func TestSplitLengths(t *testing.T) {
	for _, c := range []struct {
		n         int
		fractions []float64
		want      []int
	}{
		{10, []float64{0.5, 0.5}, []int{5, 5}},
		{11, []float64{0.5, 0.5}, []int{6, 5}},
		{10, []float64{1. / 3, 1. / 3, 1. / 3}, []int{4, 3, 3}},
		{11, []float64{1. / 3, 1. / 3, 1. / 3}, []int{4, 4, 3}},
		{0, []float64{1}, []int{0}},
	} {
		got, err := SplitLengths(c.n, c.fractions)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, bad := range [][]float64{nil, {0.5}, {-0.5, 1.5}, {0.7, 0.7}} {
		_, err := SplitLengths(10, bad)
		require.Error(t, err)
	}
}
