package attention

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/kernel/matmul"
	"github.com/plait-ml/plait/gpu/shader"
)

// The gradient of the queries is the product of the score gradients and the keys. Storing the score gradients in scratch memory saves two
// of seven products. Only some heads are stored at a time, so that the memory grows linearly with the length, as that of the operands does.

const (
	// minScoreBytes is the memory that score gradients may take in any case. Beyond it, they may take four times that of the operands.
	minScoreBytes = 256 << 20
	// scoreTile is the index of the tile of the product. It is as high as a block, because the memory beyond a diagonal block is not
	// written.
	scoreTile = 1
)

// maxScoreBytes returns the maximum size of the stored score gradients in bytes.
func (a *attentionProblem) maxScoreBytes(gpu *shader.Device) int {
	if gpu.ScoreBytes > 0 {
		return gpu.ScoreBytes
	}
	operands := a.batch * a.kv * (2*a.group*a.queries*(a.dim+a.valueDim) + 2*a.keys*(a.dim+a.valueDim))
	return max(minScoreBytes, 4*operands)
}

// scoreShape returns the shape of the stored score gradients of a head: one row of all queries for each key, with both sizes rounded up to
// whole blocks. With a causal mask, they are folded to half as many rows plus one block.
func (a *attentionProblem) scoreShape() (lines, length int) {
	blocks, length := shader.Ceil(a.keys, blockSide), shader.Ceil(a.queries, blockSide)*blockSide
	if a.Causal {
		blocks = min(blocks, length/blockSide/2+1)
	}
	return blocks * blockSide, length
}

// scoreBytes returns the bytes for the score gradients of one key head.
func (a *attentionProblem) scoreBytes() int {
	lines, length := a.scoreShape()
	size := 4
	if shader.Doubles(a.c) {
		size = 8
	}
	return size * a.group * lines * length
}

// scoreParts divides the key heads into ranges whose score gradients are stored at a time. It returns nil if they are to be computed twice
// instead.
func (a *attentionProblem) scoreParts(gpu *shader.Device) []headRange {
	if !a.c.Outs[0].Present() || !a.c.Outs[1].Present() || a.dim == 0 || gpu.Software && a.keys > matmul.MaxSoftwareK {
		return nil
	}
	most := min(a.maxScoreBytes(gpu), gpu.Binding) / a.scoreBytes()
	if most >= a.batch*a.kv {
		return []headRange{a.keyHeads()}
	}
	n := min(most, a.kv)
	if most >= a.kv {
		n = most / a.kv * a.kv
	}
	if n == 0 || n*shader.Ceil(a.keys, blockSide) < gpu.ScoreBlocks {
		return nil
	}
	var parts []headRange
	if n >= a.kv {
		each := shader.Ceil(a.batch, shader.Ceil(a.batch, n/a.kv))
		for at := 0; at < a.batch; at += each {
			parts = append(parts, headRange{batch: at, batches: min(each, a.batch-at), heads: a.kv})
		}
		return parts
	}
	each := shader.Ceil(a.kv, shader.Ceil(a.kv, n))
	for batch := range a.batch {
		for at := 0; at < a.kv; at += each {
			parts = append(parts, headRange{batch: batch, batches: 1, head: at, heads: min(each, a.kv-at)})
		}
	}
	return parts
}

// storeScores computes all gradients, with dq as a product of stored score gradients.
func (a *attentionProblem) storeScores(r *shader.Recorder, stats core.Memory, rows int, parts []headRange, scores core.Memory) error {
	for _, h := range parts {
		if err := a.keyColumns(r, stats, rows, h, &scores); err != nil {
			return err
		}
		p := a.queryProduct(r, h, scores)
		if err := p.Tiled(r, scoreTile, 1, nil); err != nil {
			return err
		}
	}
	return nil
}

// queryProduct returns the product that computes dq for the query heads of a range of key heads.
func (a *attentionProblem) queryProduct(r *shader.Recorder, h headRange, scores core.Memory) *matmul.Product {
	lines, length := a.scoreShape()
	ds := &core.Operand{Memory: scores, DType: r.RealType()}
	dq, k := a.c.Outs[0], *a.k
	dq.Offset += h.batch*dq.Strides[0] + h.head*a.group*dq.Strides[1]
	k.Offset += h.batch*k.Strides[0] + h.head*k.Strides[1]
	p := &matmul.Product{
		M: a.queries, N: a.dim, K: a.keys, Out: &dq, A: ds, B: &k, Alpha: a.Scale, Folded: a.Causal,
		ARow: 1, ACol: length, BRow: k.Strides[2], BCol: k.Strides[3], CRow: dq.Strides[2], CCol: dq.Strides[3],
		Batch: shader.Loop{Count: h.batches * h.heads * a.group, Strides: make([][]int, 3)},
	}
	p.Batch.Push(h.batches, dq.Strides[0], h.heads*a.group*lines*length, k.Strides[0])
	p.Batch.Push(h.heads, a.group*dq.Strides[1], a.group*lines*length, k.Strides[1])
	p.Batch.Push(a.group, dq.Strides[1], lines*length, 0)
	return p
}
