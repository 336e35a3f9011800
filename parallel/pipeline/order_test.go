package pipeline

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestOrderIsTheSchedules compares what the devices did, in order, with the schedule.
func TestOrderIsTheSchedules(t *testing.T) {
	in64(t, func() {
		for _, name := range Names() {
			p, err := NewPipeline(mlp(8, 4, 0), names(3), Options{Chunks: 7, Schedule: name, Loss: mse(false)})
			require.NoError(t, err)
			_, _, err = p.Step(op.Rand(7, 4), op.Rand(7, 4))
			require.NoError(t, err)
			s, err := p.Schedule(7)
			require.NoError(t, err)
			measured := p.Measured()
			for d, row := range measured.Spans {
				var did []Action
				for k, x := range row {
					did = append(did, x.Action)
					if k > 0 {
						assert.LessOrEqual(t, row[k-1].End, x.Start, name)
					}
				}
				assert.Equal(t, s.Rows[d], byStart(row, did), name)
			}
			require.NoError(t, p.Release())
		}
	})
}

// byStart returns the actions in the order in which they began.
func byStart(row []Span, did []Action) []Action {
	out := append([]Action(nil), did...)
	for i := range out {
		for j := i; j > 0 && row[j].Start < row[j-1].Start; j-- {
			row[j], row[j-1] = row[j-1], row[j]
			out[j], out[j-1] = out[j-1], out[j]
		}
	}
	return out
}

// TestHandWrittenSchedule runs an order of the caller's own.
func TestHandWrittenSchedule(t *testing.T) {
	in64(t, func() {
		s, err := Parse("0F0,0F1,0I0,0B1,0F2,0W0,0B2\n1F0,1I0,1F1,1W0,1B1,1F2,1I2,1W2")
		require.NoError(t, err)
		model := mlp(3, 4, 0)
		x, target := op.Rand(6, 4), op.Rand(6, 4)
		whole(t, model, x, target, mse(false))
		want := grads(t, model)
		p, err := NewPipeline(model, names(2), Options{Chunks: 3, Custom: s, Loss: mse(false), Split: []int{1, 2}})
		require.NoError(t, err)
		_, _, err = p.Step(x, target)
		require.NoError(t, err)
		near(t, want, grads(t, p))
		_, _, err = p.Step(op.Rand(2, 4), op.Rand(2, 4)) // fewer micro-batches
		require.NoError(t, err)
		require.NoError(t, p.Release())
	})
}

// TestStagesWaitForNobodyBehindThem checks that a stage runs all its forward passes while the device of the next stage is busy.
func TestStagesWaitForNobodyBehindThem(t *testing.T) {
	in64(t, func() {
		p, err := NewPipeline(mlp(2, 4, 0), names(2), Options{Chunks: receiveStreamCount, Loss: mse(false)})
		require.NoError(t, err)
		x, target := op.Rand(receiveStreamCount, 4), op.Rand(receiveStreamCount, 4)
		first, busy := core.CurrentContext().Stream(p.Executor().Device(0)), core.CurrentContext().Stream(p.Executor().Device(1))
		_, _, err = p.Evaluate(x, target)
		require.NoError(t, err)
		require.NoError(t, core.Synchronize())
		open := make(chan struct{})
		c := busy.Begin(-1, "wait")
		c.Fn = func() error { <-open; return nil }
		c.Work = math.MaxInt32
		busy.Launch(c)
		loss, _, err := p.Evaluate(x, target)
		require.NoError(t, err)
		assert.True(t, first.Record().WaitFor(20*time.Second), "the first stage waits for the second")
		close(open)
		_, err = loss.Item()
		require.NoError(t, err)
		require.NoError(t, p.Release())
	})
}
