package pipeline

// interleaved follows Narayanan et al. 2021: groups of about as many micro-batches as there are devices pass through the first
// stages of all devices, then through the second ones, and so on.
func interleaved(devices, micro, chunks int) [][]Action {
	if chunks == 1 {
		return oneForwardOneBackward(devices, micro, 1)
	}
	groups := groupsOf(devices, micro)
	rows := make([][]Action, devices)
	for d := range rows {
		p := rounds(d, devices, chunks, groups)
		rows[d] = p.pairs(min(len(p.forward), 2*(devices-1-d)+(chunks-1)*groups[0]))
	}
	return rows
}

// groupsOf cuts the micro-batches into groups that are at least as large as the number of devices, if there are so many, the
// largest first.
func groupsOf(devices, micro int) []int {
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

// rounds lists the passes of device d: group by group, and in it stage by stage; backward the last stage comes first.
func rounds(d, devices, chunks int, groups []int) passes {
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
