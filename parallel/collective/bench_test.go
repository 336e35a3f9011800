package collective

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/coretest/wiretest"
)

// BenchmarkCopyLoop is the baseline of the all-reduce: the same number of threads copies the bytes that the ranks read and write.
func BenchmarkCopyLoop(b *testing.B) {
	for _, ranks := range []int{2, 4} {
		b.Run(fmt.Sprint(ranks), func(b *testing.B) {
			const n = 64 << 20
			bufs := make([][]byte, 2*ranks)
			for i := range bufs {
				bufs[i] = make([]byte, n)
				for j := 0; j < n; j += 4096 {
					bufs[i][j] = 1
				}
			}
			b.SetBytes(n)
			b.ResetTimer()
			for range b.N {
				var wg sync.WaitGroup
				for r := range ranks {
					wg.Go(func() { copy(bufs[2*r], bufs[2*r+1]) })
				}
				wg.Wait()
			}
		})
	}
}

func BenchmarkAllReduce(b *testing.B) {
	for _, ranks := range []int{2, 4} {
		for _, bytes := range []int{4, 1 << 10, 64 << 10, 1 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("%dx%d", ranks, bytes), func(b *testing.B) {
				b.SetBytes(int64(bytes))
				err := Spawn(ranks, nil, Options{Timeout: time.Minute}, func(r *Rank) error {
					x := core.FromSlice(make([]float32, bytes/4))
					if err := r.World.AllReduce(x, Sum).Wait(); err != nil {
						return err
					}
					if r.Rank == 0 {
						b.ResetTimer()
					}
					for range b.N {
						if err := r.World.AllReduce(x, Sum).Wait(); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// BenchmarkAllReduceAcrossProcesses measures all-reduces between processes, over a transport that copies memory. Compare large ones with
// BenchmarkCopyLoop: each byte is copied twice, and read once more for the sum.
func BenchmarkAllReduceAcrossProcesses(b *testing.B) {
	for _, processes := range []int{2, 4} {
		for _, bytes := range []int{4, 1 << 10, 64 << 10, 1 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("%dx%d", processes, bytes), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(bytes))
				counts := layouts["one rank each"](processes)
				err := spawnIn(wiretest.New(processes, 0, 1), counts, nil, Options{Timeout: time.Minute}, func(r *Rank) error {
					x := core.FromSlice(make([]float32, bytes/4))
					if err := r.World.AllReduce(x, Sum).Wait(); err != nil {
						return err
					}
					if r.Rank == 0 {
						b.ResetTimer()
					}
					for range b.N {
						if err := r.World.AllReduce(x, Sum).Wait(); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
