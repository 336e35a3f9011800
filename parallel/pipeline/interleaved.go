package pipeline

// interleaved builds the interleaved 1F1B schedule of Narayanan et al. 2021. Micro-batches form groups of about as many as there
// are devices. Each group passes through the first stage of every device, then through the second stage of every device, and so
// on.
func interleaved(devices, micro, chunks int) [][]Action {
	if chunks == 1 {
		return oneForwardOneBackward(devices, micro, 1)
	}
	groups := microBatchGroups(devices, micro)
	rows := make([][]Action, devices)
	for d := range rows {
		p := interleavedPasses(d, devices, chunks, groups)
		rows[d] = p.oneForwardOneBackward(min(len(p.forward), 2*(devices-1-d)+(chunks-1)*groups[0]))
	}
	return rows
}

// microBatchGroups returns the sizes of groups of micro-batches. Each group has at least as many as there are devices, if there
// are that many. Larger groups come first.
func microBatchGroups(devices, micro int) []int {
	n := max(1, micro/devices)
	groups := make([]int, n)
	for i := range groups {
		groups[i] = micro / n
		if i < micro%n {
			groups[i]++
		}
	}
	return groups
}

// interleavedPasses lists the passes of device d by group and, within a group, by stage. Backward passes begin with the device's
// last stage.
func interleavedPasses(d, devices, chunks int, groups []int) passes {
	var p passes
	first := 0
	for _, size := range groups {
		for c := range chunks {
			for i := range size {
				p.forward = append(p.forward, Action{Stage: c*devices + d, Micro: first + i})
				p.backward = append(p.backward, Action{Stage: (chunks-1-c)*devices + d, Micro: first + i})
			}
		}
		first += size
	}
	return p
}
