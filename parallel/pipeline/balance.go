package pipeline

import "github.com/plait-ml/plait/core"

// Balance divides a sequence of layers into non-empty parts so that the cost of the most expensive part is as small as possible.
// Among equal divisions it prefers one with small early parts. It returns the number of layers in each part.
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
	// Dynamic programming: best[p][i] is the smallest possible maximum cost of the first i layers in p parts, and cut[p][i] is the
	// first layer of the last of these parts.
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

// Sizes returns the sizes of the micro-batches for n samples. There are at most chunks micro-batches, none is empty, and their
// sizes differ by at most one. Larger ones come first.
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

// Weights returns the weight of each micro-batch's loss in the loss of the batch. For a loss that is a mean it is the fraction of
// the samples, for a sum it is 1.
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

// First returns the schedule with only the first micro-batches, those below micro. It serves a smaller batch.
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
