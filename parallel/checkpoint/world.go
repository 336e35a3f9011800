package checkpoint

import (
	"encoding/json"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// A world is the set of ranks that save or load together.
type world struct{ group *collective.Group } // nil for a single rank

// worldOf returns the ranks of a group. purpose is for error messages.
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

// exchange sends say to every rank and returns the messages of all, by rank. If a rank has a problem, every rank returns an error: that
// rank its own, the others one that names the rank.
func exchange[T any](w world, mine T, problem error) ([]T, error) {
	if w.group == nil {
		return []T{mine}, problem
	}
	type message struct {
		Say     T
		Problem string
	}
	m := message{Say: mine}
	if problem != nil {
		m = message{Problem: strings.TrimPrefix(problem.Error(), format+": ")}
	}
	encoded, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	texts, err := w.group.Exchange(encoded)
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

// agreed marks an error that every rank has returned.
type agreed struct{ error }

func (e agreed) Unwrap() error { return e.error }
