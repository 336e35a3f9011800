package pipeline

import "github.com/plait-ml/plait/core"

// Balance cuts a sequence of layers into parts, none of them empty, so that the largest part costs as little as possible, and of
// such cuts one whose earlier parts are small. It returns how many layers each part has.
func Balance(costs []float64, parts int) ([]int, error) {
	n := len(costs)
	if parts < 1 || n < parts {
		return nil, core.Errorf(core.ValueError, "pipeline", "got %d layers for %d stages: a stage needs at least one", n, parts)
	}
	sum := make([]float64, n+1)
	for i, c := range costs {
		if !(c >= 0) {
			return nil, core.Errorf(core.ValueError, "pipeline", "layer %d costs %v, want 0 or more", i, c)
		}
		sum[i+1] = sum[i] + c
	}
	// best[p][i] is the smallest possible largest cost of the first i layers in p parts, and cut[p][i] where its last part begins.
	best, cut := make([][]float64, parts+1), make([][]int, parts+1)
	for p := range best {
		best[p], cut[p] = make([]float64, n+1), make([]int, n+1)
		for i := p; i <= n && p > 0; i++ {
			for j := p - 1; j < i; j++ {
				if p == 1 && j > 0 {
					break
				}
				if v := max(best[p-1][j], sum[i]-sum[j]); j == p-1 || v < best[p][i] {
					best[p][i], cut[p][i] = v, j
				}
			}
		}
	}
	sizes := make([]int, parts)
	for p, i := parts, n; p > 0; p-- {
		sizes[p-1] = i - cut[p][i]
		i = cut[p][i]
	}
	return sizes, nil
}

// Sizes returns the numbers of samples of the micro-batches that n samples are cut into: at most chunks, none empty, and as equal
// as they can be, the larger ones first.
func Sizes(n, chunks int) []int {
	sizes := make([]int, min(n, chunks))
	for i := range sizes {
		sizes[i] = n / len(sizes)
		if i < n%len(sizes) {
			sizes[i]++
		}
	}
	return sizes
}

// Weights returns what the losses of micro-batches of such sizes count in the batch's: their parts of the samples if they are
// means, and 1 if they are sums.
func Weights(sizes []int, sum bool) []float64 {
	total := 0
	for _, n := range sizes {
		total += n
	}
	weights := make([]float64, len(sizes))
	for i, n := range sizes {
		if weights[i] = 1; !sum {
			weights[i] = float64(n) / float64(total)
		}
	}
	return weights
}

// First returns the schedule without the micro-batches from number micro on, for a smaller batch.
func (s *Schedule) First(micro int) *Schedule {
	out := &Schedule{Name: s.Name, Rows: make([][]Action, len(s.Rows))}
	for d, row := range s.Rows {
		for _, a := range row {
			if a.Micro < micro {
				out.Rows[d] = append(out.Rows[d], a)
			}
		}
	}
	return out
}
