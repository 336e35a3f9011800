package pipeline

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// grid calls fn with every schedule of 2 to 8 devices, 1 to 64 micro-batches and 1 to 4 chunks.
func grid(t *testing.T, fn func(s *Schedule, name string, p, m, v int)) {
	sizes := []int{1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 24, 33, 64}
	if testing.Short() {
		sizes = []int{1, 5, 8, 13}
	}
	for _, name := range Names() {
		for p := 1; p <= 8; p++ {
			for _, m := range sizes {
				for v := 1; v <= 4; v++ {
					if n, err := Chunks(name, v); err != nil || n != v {
						continue
					}
					s, err := New(name, p, m, v)
					require.NoError(t, err)
					fn(s, name, p, m, v)
				}
			}
		}
	}
}

func TestCase38EverySchedule(t *testing.T) {
	grid(t, func(s *Schedule, name string, p, m, v int) {
		what := []any{"%s on %d devices, %d micro-batches, %d chunks", name, p, m, v}
		require.NoError(t, s.Validate(), what...)
		require.Equal(t, []int{p, m, p * v}, []int{len(s.Rows), s.Micro(), s.Stages()}, what...)
		place, err := Place(name, p, v)
		require.NoError(t, err)
		require.Equal(t, place, s.Devices(), what...)
	})
}

func TestCase38TransfersNeverBlock(t *testing.T) {
	grid(t, func(s *Schedule, name string, p, m, v int) {
		if m > 12 {
			return
		}
		full, err := s.WithTransfers()
		require.NoError(t, err)
		require.NoError(t, full.Validate(), "%s on %d devices, %d micro-batches, %d chunks", name, p, m, v)
		require.Equal(t, s.Rows, full.Compute().Rows)
	})
}

func TestTextReadsBack(t *testing.T) {
	for _, name := range Names() {
		s, err := New(name, 3, 5, 0)
		require.NoError(t, err)
		full, err := s.WithTransfers()
		require.NoError(t, err)
		for _, s := range []*Schedule{s, full} {
			back, err := Parse(s.String())
			require.NoError(t, err)
			assert.Equal(t, s, back)
		}
	}
	s, err := Parse("\n# by hand\n0F0, ,0B0\n# second device\n1F0 1I0\t1W0\n")
	require.NoError(t, err)
	assert.Equal(t, "# by hand\n0F0,0B0\n1F0,1I0,1W0\n", s.String())
	require.NoError(t, s.Validate())
	for _, bad := range []string{"", "# only a name", "0F", "F0", "0X1", "0F1x", "0SEND_1", "-1F0", "0F99999999999999999999"} {
		_, err := Parse(bad)
		assert.Error(t, err, bad)
	}
}

func TestOrderOfOneForwardOneBackward(t *testing.T) {
	s, err := New("1f1b", 4, 6, 0)
	require.NoError(t, err)
	assert.Equal(t, `# 1f1b
0F0,0F1,0F2,0F3,0B0,0F4,0B1,0F5,0B2,0B3,0B4,0B5
1F0,1F1,1F2,1B0,1F3,1B1,1F4,1B2,1F5,1B3,1B4,1B5
2F0,2F1,2B0,2F2,2B1,2F3,2B2,2F4,2B3,2F5,2B4,2B5
3F0,3B0,3F1,3B1,3F2,3B2,3F3,3B3,3F4,3B4,3F5,3B5
`, s.String())
}

func TestOrderOfZeroBubble(t *testing.T) {
	s, err := New("zb-h1", 3, 4, 0)
	require.NoError(t, err)
	assert.Equal(t, `# zb-h1
0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3
1F0,1F1,1I0,1F2,1I1,1W0,1F3,1I2,1W1,1I3,1W2,1W3
2F0,2I0,2F1,2I1,2F2,2I2,2W0,2F3,2I3,2W1,2W2,2W3
`, s.String())
}

// TestRejects asks for each kind of fault by its own words.
func TestRejects(t *testing.T) {
	for text, want := range map[string]string{
		"0F0 0B0\n1F0":                       "the backward pass 1B0 is missing",
		"0F0 0B0\n1F0 1I0":                   "1W0 is missing",
		"0F0 0B0\n1F0 1W0":                   "1I0 is missing",
		"0F0 0B0\n1B0":                       "1F0 is missing",
		"0F0 0F0 0B0":                        "0F0 stands there twice",
		"0F0 0B0 0I0 0W0":                    "both there",
		"0F0 0B0\n2F0 2B0":                   "stage 1 is on no device",
		"0F0\n0B0":                           "stage 0 is on device 0 and, with 0B0, on device 1",
		"0B0 0F0":                            "it deadlocks: device 0 waits at 0B0 for 0F0, which comes later on the same device",
		"0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1":   "it deadlocks: device 0 waits at 0B0 for 1B0; device 1 waits at 1F1 for 0F1",
		"0F0 0W0 0I0":                        "0I0, which comes later",
		"0F0 0SEND_F0 0B0\n1F0 1B0":          "0RECV_B0 is missing",
		"0F0 0SEND_F0 1F0 1RECV_F0 1B0 0B0":  "0SEND_F0 sends nothing to another device",
		"0F0 0B0\n1F0 1B0 1SEND_B0 1RECV_F0": "0SEND_F0 is missing",
		// Each sends before it receives what the other sends.
		"0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1\n1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1": "it deadlocks: device 0 waits at 0SEND_F1 for 1RECV_F1; device 1 waits at 1SEND_B0 for 0RECV_B0",
	} {
		s, err := Parse(text)
		require.NoError(t, err, text)
		assert.ErrorContains(t, s.Validate(), want, text)
	}
	_, err := New("dualpipe", 2, 2, 0)
	assert.ErrorContains(t, err, `got "dualpipe", want one of `+strings.Join(Names(), ", "))
	_, err = New("1f1b", 2, 2, 3)
	assert.ErrorContains(t, err, "1f1b has 1 stages on each device, got 3")
	_, err = New("1f1b", 2, 0, 0)
	assert.ErrorContains(t, err, "0 micro-batches")
}

// The comment of New lists the schedules by hand.
func TestEveryScheduleIsDescribed(t *testing.T) {
	source, err := os.ReadFile("schedules.go")
	require.NoError(t, err)
	for _, name := range Names() {
		assert.True(t, strings.Contains(string(source), "\n//   - "+name+": "), "say in the comment of New, in schedules.go, what %s does", name)
	}
}

func TestMemoryLimitNamesThePeak(t *testing.T) {
	s, err := New("gpipe", 2, 4, 0)
	require.NoError(t, err)
	assert.NoError(t, s.CheckMemory(Costs{}, []float64{4, 4}))
	assert.EqualError(t, s.CheckMemory(Costs{}, []float64{4, 3}),
		"schedule: gpipe: device 1 would keep 4 activations at its peak, and more than its limit of 3 from 1F3 on")
	assert.ErrorContains(t, s.CheckMemory(Costs{Saved: []float64{100, 10}}, []float64{399, 100}), "400 bytes of activations")
	assert.ErrorContains(t, s.CheckMemory(Costs{}, []float64{1}), "1 limits of memory for 2 devices")
}

func TestPlot(t *testing.T) {
	a, err := New("1f1b", 2, 4, 0)
	require.NoError(t, err)
	b, err := New("zb-v", 2, 4, 0)
	require.NoError(t, err)
	x, err := a.Simulate(Costs{})
	require.NoError(t, err)
	y, err := b.Simulate(Costs{})
	require.NoError(t, err)
	y.Name = "<measured>"
	svg := Plot("ms", x, y)
	assert.True(t, strings.HasPrefix(svg, "<svg ") && strings.HasSuffix(svg, "</svg>\n"))
	assert.Equal(t, 2*2*4+2*2*3*4, strings.Count(svg, "<title>"))
	assert.Contains(t, svg, "&lt;measured&gt;: 25 ms, bubble 4.0 %")
	assert.Contains(t, svg, "1f1b: 15 ms, bubble 20.0 %")
}
