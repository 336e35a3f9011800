package mesh

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// exchanged returns the sum of the ranks' numbers, exchanged in the current pass.
func exchanged(m *Mesh, n int) (float64, error) { return sum(m.Exchange(0), n) }

func TestAPassFailsOnAllRanks(t *testing.T) {
	ranks(t, 3, func(r *collective.Rank) error {
		m, err := New(r.World, []int{3}, Options{})
		if err != nil {
			return err
		}
		told := 0
		m.OnFailedPass(func(error) { told++ })
		assert.Nil(t, m.Pass())
		assert.Same(t, m.Group(0), m.Exchange(0))
		for pass := range 6 {
			if err := m.BeginPass(); err != nil {
				return err
			}
			fails := pass%2 == 1
			if fails && r.Rank == 1 {
				m.Pass().Fail(errors.New("too much"))
			} else if got, err := exchanged(m, r.Rank+pass); fails {
				assert.ErrorContains(t, err, "rank 1 has failed: too much")
			} else if assert.NoError(t, err) {
				assert.InDelta(t, 3+3*pass, got, 0)
			}
			if pass < 4 { // the others end with the beginning of the next
				over, err := m.Pass().End(time.Minute)
				assert.True(t, over)
				assert.Equal(t, fails, err != nil)
			}
		}
		if err := m.BeginPass(); err != nil {
			return err
		}
		assert.Equal(t, 3, told)
		got, err := exchanged(m, r.Rank)
		assert.InDelta(t, 3, got, 0)
		return err
	})
}

func TestExchangesOfTwoPassesDoNotMeet(t *testing.T) {
	err := collective.Spawn(2, []string{"cpu:0"}, collective.Options{Timeout: time.Minute}, func(r *collective.Rank) error {
		m, err := New(r.World, []int{2}, Options{})
		if err != nil {
			return err
		}
		if err := m.BeginPass(); err != nil {
			return err
		}
		before := m.Exchange(0)
		if err := m.BeginPass(); err != nil {
			return err
		}
		g := m.Exchange(0)
		if r.Rank == 1 {
			g = before
		}
		_, err = sum(g, 1)
		return err
	})
	kind, _ := core.KindOf(err)
	assert.Equal(t, core.DistributedError, kind)
	assert.ErrorContains(t, err, "pass 1")
	assert.ErrorContains(t, err, "pass 2")
}
