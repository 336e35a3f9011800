package pipeline

// zeroBubble builds ZB-H1 of Qi et al. 2023. It is 1F1B, or interleaved 1F1B with a shorter warm-up, with split backward passes:
// device d runs each WeightGrad d passes after its InputGrad. Earlier stages then wait less, and no device keeps more
// micro-batches than the first device under 1F1B.
func zeroBubble(devices, micro, chunks int) [][]Action {
	groups := microBatchGroups(devices, micro)
	rows := make([][]Action, devices)
	for d := range rows {
		p := interleavedPasses(d, devices, chunks, groups)
		warm := min(len(p.forward), devices-1-d+(chunks-1)*groups[0])
		done := 0 // number of InputGrad actions so far
		for _, a := range p.oneForwardOneBackward(warm) {
			if a.Kind == Forward {
				rows[d] = append(rows[d], a)
				continue
			}
			rows[d] = append(rows[d], Action{InputGrad, a.Stage, a.Micro})
			if done++; done > d {
				b := p.backward[done-1-d]
				rows[d] = append(rows[d], Action{WeightGrad, b.Stage, b.Micro})
			}
		}
		for _, b := range p.backward[max(0, done-d):] {
			rows[d] = append(rows[d], Action{WeightGrad, b.Stage, b.Micro})
		}
	}
	return rows
}

// zeroBubbleV builds ZB-V of Qi et al. 2024: device d has the stages d and 2*devices-1-d.
func zeroBubbleV(devices, micro, _ int) [][]Action {
	rows := make([][]Action, devices)
	// The pattern needs at least 2*devices-1 micro-batches. With fewer, add leaves out the actions of missing micro-batches.
	n := max(micro, 2*devices-1)
	for d := range rows {
		r := vRow{down: d, up: 2*devices - 1 - d, micro: micro}
		for range 2*(devices-d) - 1 {
			r.add(Forward, r.down)
		}
		for range d {
			r.add(Forward, r.up)
			r.add(Forward, r.down)
		}
		for range devices - d {
			r.add(Forward, r.up)
			r.backward(r.up)
		}
		for r.next[Forward][1] < r.next[Forward][0] || r.next[Forward][0] < n {
			if r.next[Forward][0] < n {
				r.add(Forward, r.down)
			}
			r.backward(r.down)
			r.add(Forward, r.up)
			r.backward(r.up)
		}
		for range d {
			r.add(InputGrad, r.down)
			r.add(InputGrad, r.up)
		}
		for range devices - d {
			r.backward(r.down)
		}
		for _, stage := range []int{r.up, r.down} {
			for c := r.chunk(stage); r.next[WeightGrad][c] < r.next[InputGrad][c]; {
				r.add(WeightGrad, stage)
			}
		}
		rows[d] = r.row
	}
	return rows
}

// A vRow builds the row of a device with two stages, one on the way down the V and one on the way up.
type vRow struct {
	down, up, micro int
	next            [WeightGrad + 1][2]int // next micro-batch, by kind and stage
	row             []Action
}

func (r *vRow) chunk(stage int) int {
	if stage == r.up {
		return 1
	}
	return 0
}

// add appends the next action of a kind in a stage.
func (r *vRow) add(k Kind, stage int) {
	at := &r.next[k][r.chunk(stage)]
	if *at < r.micro {
		r.row = append(r.row, Action{k, stage, *at})
	}
	*at++
}

// backward appends the next InputGrad and the next WeightGrad.
func (r *vRow) backward(stage int) {
	r.add(InputGrad, stage)
	r.add(WeightGrad, stage)
}
