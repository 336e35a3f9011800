package coretest

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/plait-ml/plait/core"
)

// EachAllocation runs fn with all of its allocations in the given ranks failing but for the first few: none, then one, then two,
// and so on until one run comes to its end without a failure; and before that with one allocation failing alone. fn returns the
// error of the run, which must be one of memory; after each run that failed, check is called. Nothing else may run in these ranks
// meanwhile.
func EachAllocation(t testing.TB, fn func() error, check func(), ranks ...int) {
	t.Helper()
	for n := 2; ; n += Stride() {
		k := n / 2
		var err error
		where := failing(k, n%2 == 1, func() { err = guarded(fn) }, ranks)
		switch kind, _ := core.KindOf(err); {
		case where == nil:
			if err != nil {
				t.Fatalf("without a failure: %v", err)
			}
			return
		case err == nil:
			t.Fatalf("allocation %d failed, and nobody said so:\n%s", k, *where)
		case kind != core.MemoryError:
			t.Fatalf("allocation %d failed, and the error is of kind %v: %v\n%s", k, kind, err, *where)
		}
		check()
	}
}

// failing runs fn with allocation number k of the ranks failing, and perhaps those after it. It returns the stack of that
// allocation, or nil if there were not so many.
func failing(k int, lasting bool, fn func(), ranks []int) (where *[]byte) {
	var count atomic.Int64
	var stack atomic.Pointer[[]byte]
	core.SetAllocFault(func(s core.Stream, _ int) bool {
		if !slices.Contains(ranks, s.Rank()) {
			return false
		}
		switch n := count.Add(1); {
		case n == int64(k):
			here := debug.Stack()
			stack.Store(&here)
			return true
		default:
			return lasting && n > int64(k)
		}
	})
	defer core.SetAllocFault(nil)
	fn()
	return stack.Load()
}

// Unchanged returns a function that fails the test unless tensors have the elements that they have now, a rank has no more memory in
// use on the device, and its stream works.
func Unchanged(t testing.TB, dev core.Device, rank int, tensors ...*core.Tensor) (check func()) {
	t.Helper()
	read := func(x *core.Tensor) []byte {
		b, err := x.Bytes()
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return b
	}
	var before [][]byte
	for _, x := range tensors {
		before = append(before, read(x))
	}
	used := core.RankUsage(dev, rank).Current
	return func() {
		t.Helper()
		_ = dev.Synchronize() // the errors of execution are known
		for i, x := range tensors {
			if !bytes.Equal(before[i], read(x)) {
				t.Fatalf("tensor %d, %v, was changed", i, x)
			}
		}
		x := core.FromSlice([]float32{1, 2})
		if v, err := core.Values[float32](x); err != nil || !slices.Equal(v, []float32{1, 2}) {
			t.Fatalf("the stream does not work any more: %v, %v", v, err)
		}
		x.Release()
		if now := core.RankUsage(dev, rank).Current; now > used {
			t.Fatalf("%d bytes are in use, before there were %d", now, used)
		}
	}
}

// guarded is fn, whose panic is an error.
func guarded(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn()
}
