package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// exactly asserts that a fraction of times that are whole numbers is a/b.
func exactly(t *testing.T, a, b int, tl *Timeline, what ...any) {
	t.Helper()
	busy := 0.0
	for _, row := range tl.Spans {
		for _, x := range row {
			busy += x.End - x.Start
		}
	}
	all := tl.Time * float64(len(tl.Spans))
	require.Equal(t, float64(a)*all, (all-busy)*float64(b), what...) // whole numbers: exact
	require.InDelta(t, float64(a)/float64(b), tl.Bubble, 1e-15, what...)
}

// TestCase39Formulas compares bubbles and peaks with the formulas in the literature, over the grid.
func TestCase39Formulas(t *testing.T) {
	grid(t, func(s *Schedule, name string, p, m, v int) {
		tl, err := s.Simulate(Costs{})
		require.NoError(t, err)
		what := []any{"%s on %d devices, %d micro-batches, %d chunks", name, p, m, v}
		for d := range p {
			live := -1
			switch {
			case name == "gpipe":
				live = m
			case name == "1f1b", name == "interleaved" && v == 1:
				live = min(p-d, m)
			case name == "interleaved" && m%p == 0:
				live = min(2*(p-d-1)+(v-1)*p+1, v*m)
			case name == "looped-bfs":
				live = v * m
			case name == "zb-h1" && v == 1:
				live = min(p, m)
			case name == "zb-v":
				assert.LessOrEqual(t, tl.Live[d], 2*p, what...) // the memory of 1f1b: p times two half stages
			}
			if live >= 0 {
				require.Equal(t, live, tl.Live[d], what...)
			}
		}
		switch {
		case name == "gpipe", name == "1f1b", name == "interleaved" && v == 1:
			exactly(t, p-1, m+p-1, tl, what...)
		case name == "interleaved" && m%p == 0:
			exactly(t, p-1, v*m+p-1, tl, what...)
		case name == "looped-bfs" && m >= p:
			exactly(t, p-1, v*m+p-1, tl, what...)
		case name == "zb-h1" && v == 1 && m >= 2*p-1:
			// (p-1)(F+I+W-2W) of a device's time that is a third of 1f1b's, 3(p-1).
			exactly(t, p-1, 3*m+p-1, tl, what...)
		case name == "zb-v" && m >= 2*p-1:
			assert.LessOrEqual(t, tl.Time, float64(6*m+p-1), what...)
		}
	})
}

// TestCase39Table has the figures of schedules whose bubbles and peaks are known.
func TestCase39Table(t *testing.T) {
	for _, row := range []struct {
		p, m                 int
		bubble, interleaved  float64
		ofPairs, interlevels []int
	}{
		{2, 4, 0.2000, 0.1111, []int{2, 1}, []int{5, 3}},
		{4, 4, 0.4286, 0.2727, []int{4, 3, 2, 1}, []int{8, 8, 7, 5}},
		{4, 8, 0.2727, 0.1579, []int{4, 3, 2, 1}, []int{11, 9, 7, 5}},
		{4, 16, 0.1579, 0.0857, []int{4, 3, 2, 1}, []int{11, 9, 7, 5}},
		{8, 8, 0.4667, 0.3043, []int{8, 7, 6, 5, 4, 3, 2, 1}, []int{16, 16, 16, 16, 15, 13, 11, 9}},
		{8, 32, 0.1795, 0.0986, []int{8, 7, 6, 5, 4, 3, 2, 1}, []int{23, 21, 19, 17, 15, 13, 11, 9}},
	} {
		for _, name := range []string{"gpipe", "1f1b", "interleaved"} {
			s, err := New(name, row.p, row.m, 0)
			require.NoError(t, err)
			tl, err := s.Simulate(Costs{})
			require.NoError(t, err)
			bubble, peaks := row.bubble, row.ofPairs
			switch name {
			case "gpipe":
				peaks = make([]int, row.p)
				for i := range peaks {
					peaks[i] = row.m
				}
			case "interleaved":
				bubble, peaks = row.interleaved, row.interlevels
			}
			assert.InDelta(t, bubble, tl.Bubble, 5e-5, "%s %d %d", name, row.p, row.m)
			assert.Equal(t, peaks, tl.Live, "%s %d %d", name, row.p, row.m)
		}
	}
}

func TestCosts(t *testing.T) {
	s, err := New("1f1b", 2, 2, 0)
	require.NoError(t, err)
	tl, err := s.Simulate(Costs{Forward: []float64{2, 1}, Input: []float64{3, 1}, Weight: []float64{1, 2}, Link: []float64{0.5}, Saved: []float64{10, 7}})
	require.NoError(t, err)
	assert.Equal(t, [][]Span{
		{{Action{Forward, 0, 0}, 0, 2}, {Action{Forward, 0, 1}, 2, 4}, {Action{Backward, 0, 0}, 7, 11}, {Action{Backward, 0, 1}, 11, 15}},
		{{Action{Forward, 1, 0}, 2.5, 3.5}, {Action{Backward, 1, 0}, 3.5, 6.5}, {Action{Forward, 1, 1}, 6.5, 7.5}, {Action{Backward, 1, 1}, 7.5, 10.5}},
	}, tl.Spans)
	assert.Equal(t, 15.0, tl.Time)
	assert.Equal(t, []float64{20, 7}, tl.Peak)
	assert.Equal(t, []int{2, 1}, tl.Live)
	assert.InDelta(t, 1-20.0/30, tl.Bubble, 1e-12)

	_, err = s.Simulate(Costs{Forward: []float64{1}})
	assert.ErrorContains(t, err, "got 1 costs in Forward, want 2")
	_, err = s.Simulate(Costs{Link: []float64{-1}})
	assert.ErrorContains(t, err, "got the cost -1 in Link")
}

// TestLinksCarryOneTensorAtATime checks transfers that take longer than the computation they overlap with.
func TestLinksCarryOneTensorAtATime(t *testing.T) {
	s, err := New("gpipe", 2, 3, 0)
	require.NoError(t, err)
	tl, err := s.Simulate(Costs{Link: []float64{2.5}})
	require.NoError(t, err)
	assert.Equal(t, [][]Span{
		{{Action{Forward, 0, 0}, 0, 1}, {Action{Forward, 0, 1}, 1, 2}, {Action{Forward, 0, 2}, 2, 3},
			{Action{Backward, 0, 0}, 14, 16}, {Action{Backward, 0, 1}, 16.5, 18.5}, {Action{Backward, 0, 2}, 19, 21}},
		{{Action{Forward, 1, 0}, 3.5, 4.5}, {Action{Forward, 1, 1}, 6, 7}, {Action{Forward, 1, 2}, 8.5, 9.5},
			{Action{Backward, 1, 0}, 9.5, 11.5}, {Action{Backward, 1, 1}, 11.5, 13.5}, {Action{Backward, 1, 2}, 13.5, 15.5}},
	}, tl.Spans)
}

// TestCostsWithoutOverlap checks transfers during which neither device computes.
func TestCostsWithoutOverlap(t *testing.T) {
	s, err := New("gpipe", 2, 2, 0)
	require.NoError(t, err)
	tl, err := s.Simulate(Costs{Forward: []float64{2, 1}, Link: []float64{1}, NoOverlap: true})
	require.NoError(t, err)
	assert.Equal(t, [][]Span{
		{{Action{Forward, 0, 0}, 0, 2}, {Action{Forward, 0, 1}, 2.5, 4.5}, {Action{Backward, 0, 0}, 9.5, 11.5}, {Action{Backward, 0, 1}, 12, 14}},
		{{Action{Forward, 1, 0}, 3, 4}, {Action{Forward, 1, 1}, 5.5, 6.5}, {Action{Backward, 1, 0}, 6.5, 8.5}, {Action{Backward, 1, 1}, 9, 11}},
	}, tl.Spans)

	// Two stages on one device send each other nothing.
	for _, name := range Names() {
		s, err := New(name, 1, 4, 0)
		require.NoError(t, err)
		c := Costs{Link: make([]float64, s.Stages()-1), NoOverlap: true}
		for i := range c.Link {
			c.Link[i] = 3
		}
		with, err := s.Simulate(c)
		require.NoError(t, err)
		without, err := s.Simulate(Costs{})
		require.NoError(t, err)
		assert.Equal(t, without, with, name)
	}
}

// TestSplitPassesKeepLess has the bytes of micro-batches between the two halves of their backward passes.
func TestSplitPassesKeepLess(t *testing.T) {
	s, err := Parse("0F0 0F1 0I0 0I1 0F2 0W0 0W1 0I2 0W2")
	require.NoError(t, err)
	tl, err := s.Simulate(Costs{Saved: []float64{10}, Rest: []float64{4}})
	require.NoError(t, err)
	assert.Equal(t, []float64{20}, tl.Peak)
	assert.Equal(t, []int{3}, tl.Live)
}

func TestZeroBubbleHasLessBubble(t *testing.T) {
	for p := 2; p <= 8; p++ {
		bubble := func(name string) float64 {
			s, err := New(name, p, 4*p, 0)
			require.NoError(t, err)
			tl, err := s.Simulate(Costs{})
			require.NoError(t, err)
			return tl.Bubble
		}
		assert.Less(t, bubble("zb-h1"), bubble("1f1b")/2)
		assert.Less(t, bubble("zb-v"), bubble("zb-h1"))
	}
}

func TestCostsOfATimeline(t *testing.T) {
	for _, name := range []string{"1f1b", "zb-h1"} {
		s, err := New(name, 2, 4, 0)
		require.NoError(t, err)
		c := Costs{Forward: []float64{2, 1}, Input: []float64{3, 2}, Weight: []float64{3, 2}}
		tl, err := s.Simulate(c)
		require.NoError(t, err)
		assert.Equal(t, c, tl.Costs())
	}
}

// TestTies compares the ends of steps with tied tensors with times computed by hand.
func TestTies(t *testing.T) {
	of := func(name string, devices, micro int, c Costs) float64 {
		s, err := New(name, devices, micro, 0)
		require.NoError(t, err)
		tl, err := s.Simulate(c)
		require.NoError(t, err)
		busy := 0.0
		for _, row := range tl.Spans {
			for _, x := range row {
				busy += x.End - x.Start
			}
		}
		assert.InDelta(t, 1-busy/(tl.Time*float64(devices)), tl.Bubble, 1e-12)
		return tl.Time
	}
	ends := []Tie{{[]int{0, 1}, 5}}
	for _, row := range []struct {
		name           string
		devices, micro int
		costs          Costs
		want           float64
	}{
		// Without ties: F0 to 1, F1 to 2, B1 to 4, B0 to 6.
		{"1f1b", 2, 1, Costs{}, 6},
		// Stage 1 has its gradient at 4, and it arrives at 9, after all passes.
		{"1f1b", 2, 1, Costs{Ties: ends}, 9},
		// It arrives at 5, while stage 0 is at its last pass.
		{"1f1b", 2, 1, Costs{Ties: []Tie{{[]int{1, 0}, 1}}}, 6},
		// The two follow one another: to 5.5, to 7.
		{"1f1b", 2, 1, Costs{Ties: []Tie{{[]int{0, 1}, 1.5}, {[]int{0, 1}, 1.5}}}, 7},
		// Of three stages on a line each: F to 3, B2 to 5, B1 to 7, B0 to 9. Stage 2's comes at 11, stage 1's at 13.
		{"1f1b", 3, 1, Costs{Ties: []Tie{{[]int{0, 1, 2}, 6}}}, 13},
		// The owner is not the first stage: stage 2's gradient of 5 is on device 1 at 10.
		{"1f1b", 3, 1, Costs{Ties: []Tie{{[]int{1, 2}, 5}}}, 10},
		// Half of the time is device 1's, from 4 to 4.5, and half is device 0's, once it has ended its pass at 6.
		{"1f1b", 2, 1, Costs{NoOverlap: true, Ties: []Tie{{[]int{0, 1}, 1}}}, 6.5},
		// From 4 to 8 and from 8 to 12.
		{"1f1b", 2, 1, Costs{NoOverlap: true, Ties: []Tie{{[]int{0, 1}, 8}}}, 12},
		// The gradients of the weights come last: I1 2-3, W1 3-4, I0 3-4, W0 4-5; the tie's from 4 to 9.
		{"zb-h1", 2, 1, Costs{Ties: ends}, 9},
		// The first and the last stage are on one device: nothing travels.
		{"zb-v", 2, 4, Costs{Ties: []Tie{{[]int{0, 3}, 100}}}, of("zb-v", 2, 4, Costs{})},
		{"1f1b", 2, 1, Costs{Ties: []Tie{{[]int{1}, 100}}}, 6},
	} {
		assert.Equal(t, row.want, of(row.name, row.devices, row.micro, row.costs), "%s %+v", row.name, row.costs)
	}
	s, err := New("1f1b", 2, 1, 0)
	require.NoError(t, err)
	for want, tie := range map[string]Tie{
		"got a tie of the stages [], want some from 0 to 1":    {nil, 1},
		"got a tie of the stages [0 2], want some from 0 to 1": {[]int{0, 2}, 1},
		"got the cost -1 of a tie":                             {[]int{0, 1}, -1},
	} {
		_, err := s.Simulate(Costs{Ties: []Tie{tie}})
		assert.ErrorContains(t, err, want)
	}
}
