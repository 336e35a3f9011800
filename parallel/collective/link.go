package collective

// Simulated slow links between ranks: see [Options.LinkRate].

import (
	"math"
	"time"

	"github.com/plait-ml/plait/core"
)

// linkTime returns the time of an operation on the simulated links; 0 without [Options.LinkRate].
func linkTime(calls []*rankCall) time.Duration {
	longest := 0
	rate := 0.0
	for _, p := range calls {
		if p.local == nil || p.local.rendezvous.world.rate <= 0 {
			return 0
		}
		rate = p.local.rendezvous.world.rate
		longest = max(longest, moved(p.op, p.rank, len(calls)))
	}
	return time.Duration(float64(longest) / rate * float64(time.Second))
}

// simulateLink occupies a stream for d after the events.
func simulateLink(s core.Stream, name string, d time.Duration, after []core.Event) {
	c := s.Begin(-1, name)
	c.AddWaits(after...)
	c.Work = math.MaxInt
	c.Fn = func() error {
		time.Sleep(d)
		return nil
	}
	s.Launch(c)
}
