package reduction

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/cpu/kernel"
)

// A form is a reduction in normal form (see reduction.h), and the plan of how its work is split. Both depend on shapes
// and strides only.
type form struct {
	keep, reduce  [core.MaxDims]kernel.Dim // outermost first
	nk, nr        int
	kept, reduced int // products of the sizes

	pairs               bool // elements are the parts of complex numbers
	columns, gather     bool
	abreast             bool
	width, fold         int
	pieces, piece, unit int
	chunks              int
}

// The limits in reduction.h.
const (
	maxWidth       = 1024
	maxWidthTwo    = 512
	maxWidthGather = 128
	blockRows      = 64
	blockElems     = 4096
	batch          = 256

	// Rows of up to `short` elements are reduced in groups, and so are columns as short where fewer than `narrow` are adjacent. The limits
	// of a row and a group are those of plait_abreast.h.
	short  = 32
	narrow = 64
	group  = 128

	// vector is the width of a row that fills vectors, and fewRows the number of wider rows that are worth their states.
	vector  = 16
	fewRows = 16

	// minWork is the number of additions in a chunk, at least.
	minWork = 1 << 16
	// enough is a number of chunks that is sufficient to keep all cores of a machine busy. More are only made at no
	// cost.
	enough = 256
	// enoughColumns is the same for pieces that leave a state for each column, which has to be written and read again.
	enoughColumns = 64
)

// normalise brings the reduction of a tensor over dims, which are sorted, into normal form. In the output the reduced
// dimensions are absent or of size 1. If ordered is set, the reduced dimensions stay in row-major order. With pairs, the last dimension
// is that of the parts of complex numbers, and elements are pairs.
func (f *form) normalise(shape, strides, outShape, outStrides []int, dims []int64, ordered, pairs bool) {
	part := 1
	if f.pairs = pairs; pairs {
		part, shape, outShape = 2, shape[:len(shape)-1], outShape[:len(outShape)-1]
	}
	keepdim := len(outShape) == len(shape)
	f.kept, f.reduced = 1, 1
	for i, o := 0, 0; i < len(shape); i++ {
		d := kernel.Dim{Size: shape[i], In: strides[i] / part}
		if len(dims) > 0 && int(dims[0]) == i {
			dims = dims[1:]
			if keepdim {
				o++
			}
			f.reduced *= d.Size
			if d.Size != 1 {
				f.reduce[f.nr] = d
				f.nr++
			}
			continue
		}
		d.Out = outStrides[o]
		o++
		f.kept *= d.Size
		if d.Size != 1 {
			f.keep[f.nk] = d
			f.nk++
		}
	}
	kernel.SortDims(f.keep[:f.nk])
	f.nk = kernel.CollapseDims(f.keep[:f.nk])
	if !ordered {
		kernel.SortDims(f.reduce[:f.nr])
	}
	f.nr = kernel.CollapseDims(f.reduce[:f.nr])
}

// plan chooses blocks of rows or columns and splits the work. An element costs as much as `work` additions. twice says
// that blocks are read twice. With moments, short rows are not made columns.
func (f *form) plan(work int, ordered, twice, moments bool) {
	var k, r kernel.Dim
	if f.nk > 0 {
		k = f.keep[f.nk-1]
	}
	if f.nr > 0 {
		r = f.reduce[f.nr-1]
	}
	f.fold = 1
	f.columns = f.nk > 0 && (f.nr == 0 || k.Reach() < r.Reach())
	if f.nr <= 1 && f.reduced > 0 && f.reduced <= short && !f.pairs && (f.columns && k.Size < narrow || !f.columns && !moments) {
		f.abreast = true
		f.pieces, f.piece = 1, f.reduced
		f.unit = (minWork/(f.reduced*work) + group) / group * group
		f.chunks = (f.kept + f.unit - 1) / f.unit
		return
	}
	if !f.columns {
		f.gather = f.nr > 0 && r.In != 1
		// Rows that interleave in memory are read together, in the order of memory.
		together := 1
		if f.nr > 1 && f.nk > 0 && k.Reach() < f.reduce[f.nr-2].Reach() {
			together = min(k.Size, batch)
		}
		f.cut(f.kept, together, f.reduced, blockElems, work, enough)
		return
	}
	f.gather = k.In != 1
	limit := maxWidth
	if twice {
		limit = maxWidthTwo
	}
	if f.gather {
		limit = maxWidthGather
	}
	if f.pairs {
		limit /= 2
	}
	// Narrow rows that are adjacent in memory are read as one wide row. The states of its parts are merged at the end, so
	// that short columns are not worth the widest one.
	if !f.gather && !f.pairs && !(ordered && f.nr > 1) && f.nr > 0 && r.In == k.Size && k.Size < 64 {
		for f.fold*2*k.Size <= limit && f.fold*2 <= r.Size && (f.fold*2*k.Size <= vector || f.fold*2*fewRows <= r.Size) {
			f.fold *= 2
		}
	}
	blocks := (k.Size + limit - 1) / limit
	f.width = min(k.Size, ((k.Size+blocks-1)/blocks+63)&^63)
	blocks = (k.Size + f.width - 1) / f.width
	f.cut(f.kept/k.Size*blocks, 1, f.reduced, blockRows*f.fold, work*f.width, enoughColumns)
}

// cut splits `units` reductions of n elements into chunks. An element costs `work` additions, and `together` units stay
// in one chunk. If there are fewer than enough units and they are large, each is split into pieces of a multiple of
// `block` elements, and the states of pieces are merged afterwards.
func (f *form) cut(units, together, n, block, work, enough int) {
	f.pieces, f.piece = 1, n
	groups, cost := (units+together-1)/together, max(n, 1)*work
	if groups < enough && cost*together >= 2*minWork {
		pieces := min((enough+groups-1)/groups, cost*together/minWork)
		f.piece = ((n+pieces-1)/pieces + block - 1) / block * block
		f.pieces = max((n+f.piece-1)/f.piece, 1)
	}
	if f.pieces > 1 {
		f.unit, f.chunks = together, groups*f.pieces
		return
	}
	f.unit = max(1, minWork/cost)
	f.chunks = (units + f.unit - 1) / f.unit
}
