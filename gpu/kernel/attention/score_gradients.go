package attention

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/kernel/matmul"
	"github.com/plait-ml/plait/gpu/shader"
)

// The gradient of the queries is a product of the score gradients with the keys. Storing the score gradients in scratch memory saves two of
// seven products. Only some heads are stored at a time, so the memory grows with the length, as the operands do, not with its square.

const (
	// leastScoreRoom is how many bytes gradients of scores may take in any case; otherwise it is what the operands take.
	leastScoreRoom = 256 << 20
	// scoresTile is the tile of the product: one as high as a block, beyond whose diagonal nothing was written.
	scoresTile = 1
)

// scoreRoom returns the maximum size of the stored score gradients in bytes.
func (a *attentionProblem) scoreRoom(gpu *shader.Device) int {
	if gpu.ScoreBytes > 0 {
		return gpu.ScoreBytes
	}
	operands := a.batch * a.kv * (2*a.group*a.queries*(a.dim+a.valueDim) + 2*a.keys*(a.dim+a.valueDim))
	return max(leastScoreRoom, 4*operands)
}

// scoreSides returns the shape of the stored score gradients of a head: a row per key with all queries, both rounded up to whole blocks. A
// causal head needs half as many rows and one block.
func (a *attentionProblem) scoreSides() (lines, length int) {
	blocks, length := shader.Ceil(a.keys, blockSide), shader.Ceil(a.queries, blockSide)*blockSide
	if a.Causal {
		blocks = min(blocks, length/blockSide/2+1)
	}
	return blocks * blockSide, length
}

// scoreBytes returns the bytes for one key head.
func (a *attentionProblem) scoreBytes() int {
	lines, length := a.scoreSides()
	return 4 * a.group * lines * length
}

// scoreParts returns the heads of keys whose gradients of scores are in memory at a time, or nothing if they are to be computed
// twice.
func (a *attentionProblem) scoreParts(gpu *shader.Device) []headRange {
	if !a.c.Outs[0].Present() || !a.c.Outs[1].Present() || a.dim == 0 || gpu.Software && a.keys > matmul.MaxSoftwareK {
		return nil
	}
	most := min(a.scoreRoom(gpu), gpu.Binding) / a.scoreBytes()
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

// throughScores computes all gradients, dq from those of the scores.
func (a *attentionProblem) throughScores(r *shader.Recorder, stats core.Memory, rows int, parts []headRange, scores core.Memory) error {
	for _, h := range parts {
		if err := a.keyColumns(r, stats, rows, h, &scores); err != nil {
			return err
		}
		p := a.queryProduct(h, scores)
		if err := p.Tiled(r, scoresTile, 1, nil); err != nil {
			return err
		}
	}
	return nil
}

// queryProduct returns the product that computes dq of the query heads that belong to some heads of keys.
func (a *attentionProblem) queryProduct(h headRange, scores core.Memory) *matmul.Product {
	lines, length := a.scoreSides()
	ds := &core.Operand{Memory: scores, DType: core.Float32}
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
