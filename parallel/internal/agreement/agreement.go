// Package agreement is how ranks find out, before they work together, that they are not about to do the same.
package agreement

import (
	"encoding/json"
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// Exchange returns what each rank of a group says of itself, as JSON. name and doing are for the error where a rank says something
// else. A rank with a problem, which it has to say as well, gets it back when all have heard.
func Exchange[T any](g *collective.Group, name, doing string, mine T, problem error) ([]T, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	texts, err := g.Exchange(text)
	if err != nil {
		return nil, err
	}
	if problem != nil {
		return nil, problem
	}
	ranks := make([]T, len(texts))
	for i, text := range texts {
		if err := json.Unmarshal(text, &ranks[i]); err != nil {
			return nil, core.Errorf(core.DistributedError, name, "rank %d did something else than %s: %w", i, doing, err)
		}
	}
	return ranks, nil
}

// Values says which of n ranks have which value, in the order of their first ranks.
func Values(n int, value func(rank int) string) []string {
	var order []string
	who := map[string][]int{}
	for r := range n {
		v := value(r)
		if who[v] == nil {
			order = append(order, v)
		}
		who[v] = append(who[v], r)
	}
	for i, v := range order {
		if ranks := who[v]; len(ranks) == 1 {
			order[i] = fmt.Sprintf("%s on rank %d", v, ranks[0])
		} else {
			order[i] = fmt.Sprintf("%s on ranks %v", v, ranks)
		}
	}
	return order
}
