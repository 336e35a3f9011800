package checkpoint

import (
	"encoding/json"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// A world is the ranks that save or load together.
type world struct{ group *collective.Group } // nil: one rank alone

// worldOf returns the ranks of a group, which come together for a purpose.
func worldOf(g *collective.Group, purpose string) world {
	if g == nil {
		return world{}
	}
	return world{g.For(purpose)}
}

func (w world) rank() int {
	if w.group == nil {
		return 0
	}
	return w.group.Rank()
}

func (w world) size() int {
	if w.group == nil {
		return 1
	}
	return w.group.Size()
}

// exchange tells every rank what all have to say, by rank, unless one has a problem: then all of them return an error, the
// rank itself its own.
func exchange[T any](w world, say T, problem error) ([]T, error) {
	if w.group == nil {
		return []T{say}, problem
	}
	type message struct {
		Say     T
		Problem string
	}
	m := message{Say: say}
	if problem != nil {
		m = message{Problem: strings.TrimPrefix(problem.Error(), format+": ")}
	}
	mine, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	texts, err := w.group.Exchange(mine)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(texts))
	for r, text := range texts {
		var m message
		if err := json.Unmarshal(text, &m); err != nil {
			return nil, err
		}
		if m.Problem != "" && problem == nil {
			problem = agreed{errorf(core.DistributedError, "rank %d: %s", r, m.Problem)}
		} else if m.Problem != "" {
			problem = agreed{problem}
		}
		all[r] = m.Say
	}
	if problem != nil {
		return nil, problem
	}
	return all, nil
}

// agreed marks an error that every rank knows of.
type agreed struct{ error }

func (e agreed) Unwrap() error { return e.error }
