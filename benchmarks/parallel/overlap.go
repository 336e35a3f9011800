package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/ddp"
	"github.com/plait-ml/plait/parallel/timeline"
)

// buckets is about how many buckets the gradients make.
const buckets = 8

// overlap measures steps of DDP over slow links: computation alone, communication alone, and both, with buckets that are
// averaged beside backward and after it. Without a rate, that of the links is such that communication takes about half as long as
// computation.
func (b *bench) overlap() error {
	var compute float64
	bytes := 0
	n := len(b.devices)
	err := b.spawn(func(r *collective.Rank) error {
		t, err := b.newTrainee(r, false, ddp.NoopHook)
		if err != nil {
			return err
		}
		defer t.close()
		seconds, err := best(3, t.step)
		if r.Rank == 0 {
			compute, bytes = seconds, t.bytes()
		}
		return err
	})
	if err != nil {
		return err
	}
	moved := 2 * float64(bytes) * float64(n-1) / float64(n)
	rate := b.link * 1e6
	if rate == 0 {
		rate = moved / (compute / 2)
	}
	o := collective.Options{Timeout: 2 * time.Minute, LinkRate: rate}
	var least [4]float64 // computation, communication, beside, after
	traces := make([][]*trace, n)
	err = collective.Spawn(n, b.devices, o, func(r *collective.Rank) error {
		seconds, list, err := b.overlapped(r)
		if r.Rank == 0 {
			least = seconds
		}
		traces[r.Rank] = list
		return err
	})
	if err != nil {
		return err
	}
	b.table(fmt.Sprintf("%s, %d x %d tokens a device, AdamW, links of %.3g MB/s", b.model.Name, b.model.Batch, b.model.Context, rate/1e6), "ms a step")
	for i, name := range []string{"computation alone", "communication alone", "both, averaged beside backward", "both, averaged after backward"} {
		b.row(name, least[i]*1e3)
	}
	b.row("beside / (computation + communication)", least[2]/(least[0]+least[1]))
	b.row("after / (computation + communication)", least[3]/(least[0]+least[1]))
	fastest := 0
	for i, t := range traces[0] {
		if t.seconds() < traces[0][fastest].seconds() {
			fastest = i
		}
	}
	var ranks []*trace
	for _, list := range traces {
		ranks = append(ranks, list[fastest])
	}
	return b.show(ranks)
}

// overlapped measures, in turn, the four kinds of steps, and returns the least seconds of each and a trace of each step that
// averages beside backward.
func (b *bench) overlapped(r *collective.Rank) (least [4]float64, traces []*trace, err error) {
	var trainees [3]*trainee
	for i, o := range []struct {
		delay bool
		hook  ddp.Hook
	}{{false, ddp.NoopHook}, {false, nil}, {true, nil}} {
		if trainees[i], err = b.newTrainee(r, o.delay, o.hook); err != nil {
			return least, nil, err
		}
		defer trainees[i].close()
	}
	list := trainees[1].like()
	kinds := [4]func() error{trainees[0].step, func() error { return reduceAll(r.World, list) }, trainees[1].step, trainees[2].step}
	for i := range least {
		least[i] = math.Inf(1)
	}
	for round := range b.steps + 1 {
		for i, run := range kinds {
			if err := r.World.Barrier(); err != nil {
				return least, nil, err
			}
			start := time.Now()
			if err := run(); err != nil {
				return least, nil, err
			}
			if round == 0 {
				continue // buckets are rebuilt after the first
			}
			least[i] = min(least[i], time.Since(start).Seconds())
			if i == 2 {
				traces = append(traces, trainees[1].trace)
			}
		}
	}
	return least, traces, nil
}

// reduceAll averages tensors over the ranks and waits.
func reduceAll(g *collective.Group, list []*core.Tensor) error {
	var works collective.Works
	for _, t := range list {
		works = append(works, g.AllReduce(t, collective.Avg))
	}
	return works.Wait()
}

// A trainee is a model with what trains it.
type trainee struct {
	*replica
	stream    core.Stream // of the computation; hooks have others
	reducer   *ddp.Reducer
	optimizer *optim.Optimizer
	trace     *trace // of the last step
	works     collective.Works
}

// newTrainee makes a model that is averaged by hook, or by an all-reduce that is traced.
func (b *bench) newTrainee(r *collective.Rank, delay bool, hook ddp.Hook) (*trainee, error) {
	g, err := newReplica(b.model, r.Rank, r.Device)
	if err != nil {
		return nil, err
	}
	t := &trainee{replica: g, stream: core.CurrentContext().Stream(r.Device)}
	each := t.bytes() / buckets
	o := ddp.Options{DelayAllReduce: delay, BucketView: true, FirstBucketBytes: each, BucketBytes: each}
	if t.reducer, err = ddp.NewReducer(r.World, g.named(), o); err != nil {
		return nil, err
	}
	if hook == nil {
		hook = t.average
	}
	if err := t.reducer.RegisterHook(hook); err != nil {
		return nil, err
	}
	t.optimizer, err = optim.NewAdamW(g.Tensors(), optim.Hyper{"lr": 1e-4})
	return t, err
}

func (t *trainee) close() {
	t.optimizer.Release()
	t.reducer.Close()
}

// bytes returns those of the gradients.
func (t *trainee) bytes() (n int) {
	for _, p := range t.Tensors() {
		n += p.Numel() * p.DType().Size()
	}
	return n
}

// like returns tensors like the buckets.
func (t *trainee) like() (list []*core.Tensor) {
	for _, bucket := range t.reducer.Buckets() {
		list = append(list, op.ZerosLike(bucket.Buffer(), op.TensorOptions{}).Keep())
	}
	return list
}

// average is a hook that traces when a bucket was ready and when it was averaged.
func (t *trainee) average(bucket *ddp.Bucket) (*core.Tensor, error) {
	x := &averaged{bytes: bucket.Bytes()}
	t.trace.buckets = append(t.trace.buckets, x)
	t.trace.when(t.stream.Record(), &x.ready)
	w := bucket.Group().AllReduce(bucket.Buffer(), collective.Avg)
	t.works = append(t.works, w)
	t.trace.when(w.Event(), &x.done)
	return bucket.Buffer(), nil
}

// step makes a step of training.
func (t *trainee) step() (err error) {
	s := t.stream
	t.trace, t.works = &trace{start: time.Now()}, nil
	core.Tidy(func() {
		if err = t.reducer.Forward(t.Batch); err != nil {
			return
		}
		loss := t.Loss(t.Tensors(), t.tokens, t.targets)
		t.trace.when(s.Record(), &t.trace.forward)
		if err = autograd.Backward(loss); err != nil {
			return
		}
		t.trace.when(s.Record(), &t.trace.backward)
		if err = t.optimizer.Step(); err != nil {
			return
		}
		t.optimizer.ZeroGrad()
		t.trace.when(s.Record(), &t.trace.end)
		if _, err = loss.Item(); err == nil {
			err = s.Synchronize()
		}
	})
	t.trace.waits.Wait()
	if err == nil {
		err = t.works.Wait()
	}
	return err
}

// A trace is when the parts of a rank's step came to their ends on its device.
type trace struct {
	start                  time.Time
	forward, backward, end time.Time
	buckets                []*averaged
	waits                  sync.WaitGroup
}

// averaged is when a bucket's gradients were there, and when their average was.
type averaged struct {
	bytes       int
	ready, done time.Time
}

// when notes when an event has come.
func (t *trace) when(e core.Event, at *time.Time) {
	t.waits.Go(func() {
		e.Wait()
		*at = time.Now()
	})
}

func (t *trace) seconds() float64 { return t.end.Sub(t.start).Seconds() }

// show prints the trace of a step of all ranks, and draws it if there is a file to draw to.
func (b *bench) show(ranks []*trace) error {
	start := ranks[0].start
	for _, t := range ranks {
		if t.start.Before(start) {
			start = t.start
		}
	}
	ms := func(t time.Time) float64 { return t.Sub(start).Seconds() * 1e3 }
	b.table("rank 0's fastest step", "KiB", "ready, ms", "averaged from", "to")
	chart := timeline.Chart{Title: fmt.Sprintf("A step of %s on %d devices, ms", b.model.Name, len(ranks))}
	const forward, backward, update, reduce = "#8db8e8", "#9bd29b", "#f2d58a", "#c9a0dc"
	for i, t := range ranks {
		device := timeline.Row{Name: fmt.Sprintf("rank %d, %s", i, b.devices[i])}
		group := timeline.Row{Name: "averages"}
		last := time.Time{}
		for k, x := range t.buckets {
			from := last // one after the other, and each once every rank has it
			for _, o := range ranks {
				from = latest(from, o.buckets[k].ready)
			}
			last = x.done
			if i == 0 {
				b.row(fmt.Sprint("bucket ", k), x.bytes>>10, ms(x.ready), ms(from), ms(x.done))
			}
			group.Spans = append(group.Spans, timeline.Span{Start: ms(from), End: ms(x.done), Color: reduce, Label: fmt.Sprint(k),
				Title: fmt.Sprintf("bucket %d of %d KiB, ready at %.1f, averaged from %.1f to %.1f", k, x.bytes>>10, ms(x.ready), ms(from), ms(x.done))})
		}
		for _, s := range []struct {
			name, color string
			from, to    time.Time
		}{{"forward", forward, t.start, t.forward}, {"backward", backward, t.forward, t.backward}, {"step", update, latest(t.backward, last), t.end}} {
			device.Spans = append(device.Spans, timeline.Span{Start: ms(s.from), End: ms(s.to), Color: s.color, Label: s.name,
				Title: fmt.Sprintf("%s, %.1f to %.1f", s.name, ms(s.from), ms(s.to))})
		}
		if i == 0 {
			b.row("end of backward", "", "", "", ms(t.backward))
			b.row("end of the step", "", "", "", ms(t.end))
		}
		chart.Rows = append(chart.Rows, device, group)
	}
	if b.drawing == "" {
		return nil
	}
	legend := []timeline.Key{{Color: forward, Name: "forward"}, {Color: backward, Name: "backward"}, {Color: update, Name: "optimiser"}, {Color: reduce, Name: "bucket"}}
	return os.WriteFile(b.drawing, []byte(timeline.Draw(legend, chart)), 0o644)
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }
