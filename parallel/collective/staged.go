package collective

// Collectives of GPUs: the host cannot address their memory, so tensors go through it in chunks (stages).

import (
	"slices"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

const (
	// chunkBytes is how much of a collective goes through the host at a time, where a device's memory cannot be addressed: it is
	// copied out, joined and copied back in one go, while the chunks before and after are at other stages.
	chunkBytes = 8 << 20
	// joinedBytes is how much the host reads, or writes, for that at most. What the chunks of all ranks have on their way then fits
	// into the caches of large processors, and is joined at twice the rate.
	joinedBytes = 16 << 20
)

// A job is a collective among ranks of which at least one has memory that the host cannot address. The host joins what it can
// address with what was copied to stages, in the order of the ranks as ever, and the result is copied from stages.
type job struct {
	name   string
	posts  []*post
	lanes  []lane         // of each post
	reads  [][]core.Event // of each post, what its pieces in wait for
	writes [][]core.Event // and those out
	chunks []*chunk
	link   time.Duration // see linkTime
	began  bool
	last   []core.Event   // of each post, the end of what was launched on its stream
	used   [][]core.Event // of each post, the end of what reads its memory: on its own stream, and on those of others on its device
	ends   []ending       // of each post: nothing uses its memory any more
	sends  []bool         // of each post, whether that is so once all has been fetched
}

// A lane is the streams of a post on a device that the host cannot address; nil of others. What leaves the device has a
// stream of its own, since it may have to wait for what an earlier collective brings in.
type lane struct{ leaving, entering core.Stager }

// A part is a run of elements of a step.
type part struct {
	*step
	from, n int
	fetched []int // of each of ins, which region of its rank's fetched ones it is; -1 if it is none
}

// A chunk is the parts of a job that go through the host at the same time.
type chunk struct {
	job     *job
	parts   []part
	fetched []core.Fetched // of each post
	errs    []error        // of the posts' copies
	works   []work
	direct  []direct      // what devices copy themselves
	adds    []add         // what they add themselves
	rooms   []core.Region // of each post, for what is added
	stages  []core.Stage  // of each post
	back    []bool        // of each post, whether its stage is what was fetched
	stored  []core.Event
}

func newJob(name string, posts []*post, lanes []lane, plan []step) *job {
	n := len(posts)
	j := &job{name: name, posts: posts, lanes: lanes, link: linkTime(posts), last: make([]core.Event, n), sends: make([]bool, n)}
	for r, p := range posts {
		j.reads, j.writes = append(j.reads, foreign(p.reads, posts)), append(j.writes, foreign(p.writes, posts))
		j.used = append(j.used, make([]core.Event, n))
		j.ends = append(j.ends, newEnding())
		j.sends[r] = lanes[r].entering != nil
	}
	for i := range plan {
		s := &plan[i]
		j.leave(s)
		for _, out := range s.outs {
			j.sends[out.rank] = false
			if j.inside(s, out) {
				j.sends[s.ins[0].rank] = false
			}
		}
	}
	j.cut(plan)
	return j
}

// cut divides the steps into chunks.
func (j *job) cut(plan []step) {
	var c *chunk
	room, left := 0, 0
	for i := range plan {
		s := &plan[i]
		size, each := j.piece(s.ins[0]).Tensor.DType().Size(), max(len(s.ins), len(s.outs))
		for from, end := s.from, s.from+s.n; from < end; {
			if c == nil || min(room, left/each) < line {
				c = &chunk{job: j}
				j.chunks = append(j.chunks, c)
				room, left = chunkBytes, joinedBytes
			}
			n := min(end-from, min(room, left/each)/line*line/size)
			c.parts = append(c.parts, part{step: s, from: from, n: n})
			used := (n*size + line - 1) &^ (line - 1)
			room, left = room-used, left-used*each
			from += n
		}
	}
}

func (j *job) piece(s source) *Piece {
	if s.out {
		return &j.posts[s.rank].op.Outs[s.piece]
	}
	return &j.posts[s.rank].op.Ins[s.piece]
}

func (j *job) loan(s source) *core.Borrowed {
	if s.out {
		return j.posts[s.rank].outs[s.piece]
	}
	return j.posts[s.rank].ins[s.piece]
}

// region returns the memory of the part in a piece.
func (j *job) region(s source, p *part) core.Region {
	return j.loan(s).Region(j.piece(s).From+p.from, p.n)
}

// away reports whether the host cannot address the memory of a piece.
func (j *job) away(s source) bool { return j.lanes[s.rank].entering != nil }

// A direct is a part that a device copies to one of its outs itself.
type direct struct {
	*part
	out source
}

// inside reports whether a part goes to one of its outs without leaving a device.
func (j *job) inside(p *step, out source) bool {
	in := p.ins[0]
	return p.op == contract.CombineCopy && j.away(in) && j.away(out) &&
		j.lanes[in.rank].entering.Device() == j.lanes[out.rank].entering.Device()
}

// host returns the address of memory that the host can address.
func host(s core.Region, write bool) unsafe.Pointer {
	s.Memory.Touch(write)
	return unsafe.Add(s.Memory.Ptr, s.Offset)
}

// fetch starts the copies of the chunk to stages.
func (c *chunk) fetch() {
	j := c.job
	c.fetched, c.errs = make([]core.Fetched, len(j.posts)), make([]error, len(j.posts))
	regions := make([][]core.Region, len(j.posts))
	for i := range c.parts {
		p := &c.parts[i]
		needed := false
		for _, out := range p.outs {
			needed = needed || !j.inside(p.step, out)
		}
		for _, in := range p.ins {
			at := -1
			if needed && j.away(in) {
				at = len(regions[in.rank])
				regions[in.rank] = append(regions[in.rank], j.region(in, p))
			}
			p.fetched = append(p.fetched, at)
		}
	}
	for r, list := range regions {
		if l := j.lanes[r].leaving; l != nil && !j.posts[0].op.Kind.reduces() {
			l.Hurry() // sums of gradients are waited for in the end alone, but parameters before each layer
		}
		if len(list) > 0 {
			c.fetched[r], c.errs[r] = j.lanes[r].leaving.Fetch(list, pending(j.reads[r])...)
			j.used[r][r] = j.lanes[r].leaving.Record()
			for _, s := range list {
				j.posts[r].count(s.Size)
			}
		}
	}
	if c == j.chunks[len(j.chunks)-1] {
		j.finish(true)
	}
}

// finish says when nothing uses the memory any more of the posts that only send, or of the others. No post waits for the copies of
// another one's device.
func (j *job) finish(sends bool) {
	for r, end := range j.ends {
		if j.sends[r] == sends {
			end.finish(slices.DeleteFunc(append(j.used[r], j.last[r]), func(e core.Event) bool { return e == nil }))
		}
	}
}

// prepare waits for what is fetched and finds out what is to be joined.
func (c *chunk) prepare() {
	j := c.job
	j.begin()
	for r, f := range c.fetched {
		if f != nil && c.errs[r] == nil {
			c.errs[r] = f.Wait()
		}
	}
	if j.link > 0 {
		time.Sleep(j.link / time.Duration(len(j.chunks)))
	}
	sound := c.sound()
	stages, targets := c.place(sound)
	c.stages = stages
	for i, p := range sound {
		if len(targets[i]) == 0 {
			continue
		}
		w := work{step: p.step, dtype: j.piece(p.ins[0]).Tensor.DType(), n: p.n, targets: targets[i]}
		for k, in := range p.ins {
			if at := p.fetched[k]; at >= 0 {
				w.sources = append(w.sources, unsafe.Pointer(unsafe.SliceData(c.fetched[in.rank].Bytes(at))))
			} else {
				w.sources = append(w.sources, host(j.region(in, p), false))
			}
		}
		c.works = append(c.works, w)
	}
}

// store starts the copies from the stages and those within devices, after the works are done and the chunks before have
// started theirs: the streams are in order, and what a later job waits for may itself wait for the end of an earlier one.
func (c *chunk) store() {
	j := c.job
	for r, f := range c.fetched {
		if f != nil && c.errs[r] == nil && !c.back[r] {
			f.Release()
		}
	}
	for _, d := range c.direct {
		j.copy(d.part, d.out)
	}
	for r, s := range c.stages {
		if s != nil {
			j.last[r] = s.Store(pending(j.writes[r])...)
		}
	}
	c.add()
	for r, s := range c.stages {
		if s != nil {
			c.stored = append(c.stored, j.last[r])
		}
	}
	if c == j.chunks[len(j.chunks)-1] {
		j.finish(false)
	}
}

// begin waits until the host may use the memory of the posts that it can address.
func (j *job) begin() {
	if j.began {
		return
	}
	j.began = true
	for r, l := range j.lanes {
		if l.entering == nil {
			for _, e := range slices.Concat(j.reads[r], j.writes[r]) {
				e.Wait()
			}
		}
	}
}

// sound returns the parts of which all inputs are. What the others would have written fails.
func (c *chunk) sound() []*part {
	var list []*part
	for i := range c.parts {
		p := &c.parts[i]
		var err error
		for _, in := range p.ins {
			if err == nil {
				err = c.job.loan(in).Err()
			}
			if err == nil {
				err = c.errs[in.rank]
			}
		}
		if p.added != nil && err == nil {
			err = c.job.loan(*p.added).Err()
		}
		if err == nil {
			list = append(list, p)
			continue
		}
		for _, out := range p.outs {
			c.job.loan(out).Fail(err)
		}
	}
	return list
}

// place returns the stages of the posts that the parts write to, and for each part the addresses to write to.
func (c *chunk) place(parts []*part) (stages []core.Stage, targets [][]unsafe.Pointer) {
	j := c.job
	regions := make([][]core.Region, len(j.posts))
	for _, p := range parts {
		for _, out := range p.outs {
			if j.inside(p.step, out) {
				c.direct = append(c.direct, direct{p, out})
				continue
			} else if !j.away(out) {
				continue
			}
			region := j.region(out, p)
			if j.posts[out.rank].count(region.Size); p.added != nil {
				c.adds = append(c.adds, add{part: p})
			} else {
				regions[out.rank] = append(regions[out.rank], region)
			}
		}
	}
	stages, c.back = make([]core.Stage, len(j.posts)), make([]bool, len(j.posts))
	// What was fetched for an all-reduce goes back where it came from: it is joined where it is, and stays in caches.
	whole := j.posts[0].op.Kind == KindAllReduce && len(parts) == len(c.parts)
	var errs []error
	c.rooms, errs = c.makeRoom()
	for r, list := range regions {
		if c.rooms[r].Size > 0 {
			list = append(list, c.rooms[r]) // the last one
		}
		if len(list) == 0 || errs[r] != nil {
			continue
		}
		if whole && c.fetched[r] != nil {
			if stages[r] = c.fetched[r].Back(j.lanes[r].entering); stages[r] != nil {
				c.back[r] = true
				continue
			}
		}
		if stages[r], errs[r] = j.lanes[r].entering.Stage(list); errs[r] != nil {
			stages[r] = nil
		}
	}
	targets = make([][]unsafe.Pointer, len(parts))
	next, adds := make([]int, len(j.posts)), c.adds
	for i, p := range parts {
		for _, out := range p.outs {
			r := out.rank
			switch {
			case j.inside(p.step, out):
			case !j.away(out):
				targets[i] = append(targets[i], host(j.region(out, p), true))
			case errs[r] != nil:
				j.loan(out).Fail(errs[r])
			case p.added != nil:
				targets[i] = append(targets[i], unsafe.Pointer(&stages[r].Bytes(len(regions[r]))[adds[0].at]))
			default:
				targets[i] = append(targets[i], unsafe.Pointer(unsafe.SliceData(stages[r].Bytes(next[r]))))
				next[r]++
			}
			if p.added != nil {
				adds = adds[1:]
			}
		}
	}
	return stages, targets
}

// copy has a device copy a part to one of its own outs.
func (j *job) copy(p *part, out source) {
	in := p.ins[0]
	stream := j.lanes[out.rank].entering
	call := stream.Begin(contract.Copy, j.name)
	call.AddWaits(pending(j.reads[in.rank])...)
	call.AddWaits(pending(j.writes[out.rank])...)
	call.OutBorrowed(j.loan(out), j.piece(out).From+p.from, p.n).InBorrowed(j.loan(in), j.piece(in).From+p.from, p.n)
	call.Placed = func(done core.Event) {
		j.last[out.rank] = done
		if in.rank != out.rank {
			j.used[in.rank][out.rank] = done
		}
	}
	stream.Launch(call)
}
