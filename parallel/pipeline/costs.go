package pipeline

import "slices"

// Costs returns the times of the stages' passes for [Schedule.Simulate]. Each is the median over the micro-batches. If backward
// passes were not split, half of their time counts as InputGrad and half as WeightGrad.
func (t *Timeline) Costs() Costs {
	times := map[Kind][][]float64{}
	n := len(t.LiveStage)
	for _, row := range t.Spans {
		for _, x := range row {
			if times[x.Kind] == nil {
				times[x.Kind] = make([][]float64, n)
			}
			times[x.Kind][x.Stage] = append(times[x.Kind][x.Stage], x.End-x.Start)
		}
	}
	c := Costs{Forward: make([]float64, n), Input: make([]float64, n), Weight: make([]float64, n)}
	for s := range n {
		median := func(k Kind) float64 {
			if times[k] == nil || len(times[k][s]) == 0 {
				return 0
			}
			list := slices.Sorted(slices.Values(times[k][s]))
			return list[len(list)/2]
		}
		half := median(Backward) / 2
		c.Forward[s], c.Input[s], c.Weight[s] = median(Forward), median(InputGrad)+half, median(WeightGrad)+half
	}
	return c
}
