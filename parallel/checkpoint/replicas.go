package checkpoint

import (
	"fmt"
	"hash/crc32"
	"iter"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/safetensors"
)

// replicated iterates over the pieces that several ranks hold and whose values must be equal. The order is the same on every rank.
func (p *plan) replicated() iter.Seq2[string, source] {
	return func(yield func(string, source) bool) {
		for _, name := range p.names {
			for _, s := range p.tensors[name].from {
				if len(s.ranks) > 1 && !s.mayDiffer && !yield(name, s) {
					return
				}
			}
		}
	}
}

// digests returns a checksum of each piece of replicated that this rank holds, in the same order.
func (sv *saveJob) digests(pieces []Piece, w world) (sums []uint32, err error) {
	own := byName(pieces)
	for name, s := range sv.plan.replicated() {
		for _, p := range own[name] {
			if !p.box().equal(s.box) {
				continue
			}
			sum := crc32.New(castagnoli)
			e, err := safetensors.EntryOf(name, p.Tensor)
			if err == nil {
				err = e.Stream(sum)
			}
			if err != nil {
				return nil, fmt.Errorf("tensor %q: %w", name, err)
			}
			sums = append(sums, sum.Sum32())
		}
	}
	return sums, nil
}

// compareDigests returns an error if ranks hold different values of a piece, given the digests of every rank. It compares only ranks with the same
// kind of device, because others round differently.
func (p *plan) compareDigests(ranks [][]uint32) error {
	at := make([]int, len(ranks)) // digests of each rank already compared
	for name, s := range p.replicated() {
		type first struct {
			rank int
			sum  uint32
		}
		seen := map[string]first{}
		for i, r := range s.ranks {
			if at[r] >= len(ranks[r]) {
				return errorf(core.StateError, "rank %d sent too few checksums", r)
			}
			sum := ranks[r][at[r]]
			at[r]++
			f, ok := seen[s.kinds[i]]
			if !ok {
				seen[s.kinds[i]] = first{r, sum}
			} else if f.sum != sum {
				return errorf(core.DistributedError, "tensor %q: ranks %d and %d hold different values; "+
					"make them equal, or save them under different names", name, f.rank, r)
			}
		}
	}
	return nil
}
