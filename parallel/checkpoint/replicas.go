package checkpoint

import (
	"fmt"
	"hash/crc32"
	"iter"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/safetensors"
)

// copied returns the pieces that several ranks hold, in the same order on every rank, unless they may differ.
func (p *plan) copied() iter.Seq2[string, source] {
	return func(yield func(string, source) bool) {
		for _, name := range p.names {
			for _, s := range p.tensors[name].from {
				if len(s.ranks) > 1 && !s.any && !yield(name, s) {
					return
				}
			}
		}
	}
}

// digests returns a checksum of every piece that this rank and others hold, in the order of copied.
func (sv *save) digests(pieces []Piece, w world) (sums []uint32, err error) {
	own := byName(pieces)
	for name, s := range sv.plan.copied() {
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

// compare returns an error if ranks hold different values of a piece, given what digests returned on each. Devices of different
// kinds round differently: only ranks on one kind are compared.
func (p *plan) compare(ranks [][]uint32) error {
	at := make([]int, len(ranks)) // how many of a rank's checksums have been looked at
	for name, s := range p.copied() {
		type first struct {
			rank int
			sum  uint32
		}
		seen := map[string]first{}
		for i, r := range s.ranks {
			if at[r] >= len(ranks[r]) {
				return errorf(core.StateError, "rank %d said too little of its tensors", r)
			}
			sum := ranks[r][at[r]]
			at[r]++
			f, ok := seen[s.on[i]]
			if !ok {
				seen[s.on[i]] = first{r, sum}
			} else if f.sum != sum {
				return errorf(core.DistributedError, "tensor %q: ranks %d and %d hold different values of it, and one checkpoint has one; "+
					"make them equal, or save them under names of their own", name, f.rank, r)
			}
		}
	}
	return nil
}
