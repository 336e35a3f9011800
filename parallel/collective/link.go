package collective

// Slow links between ranks, to rehearse them: see [Options.LinkRate].

import (
	"math"
	"time"

	"github.com/plait-ml/plait/core"
)

// linkTime returns how long the ranks' links take for an operation of which each has given its post, if [Options.LinkRate]
// slows them.
func linkTime(posts []*post) time.Duration {
	longest := 0
	rate := 0.0
	for _, p := range posts {
		if p.place == nil || p.place.meeting.world.rate <= 0 {
			return 0
		}
		rate = p.place.meeting.world.rate
		longest = max(longest, moved(p.op, p.rank, len(posts)))
	}
	return time.Duration(float64(longest) / rate * float64(time.Second))
}

// hold keeps a stream, on its own thread, for as long as a link would take after the events.
func hold(s core.Stream, name string, d time.Duration, after []core.Event) {
	c := s.Begin(-1, name)
	c.AddWaits(after...)
	c.Work = math.MaxInt
	c.Fn = func() error {
		time.Sleep(d)
		return nil
	}
	s.Launch(c)
}
