// Package agreement exchanges what ranks are about to do, such as the shapes of their models, and describes the differences.
package agreement

import (
	"encoding/json"
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
)

// Exchange sends mine to all ranks of a group, as JSON, and returns the values of all ranks. name and doing describe the operation in errors.
// problem is this rank's own error, if it has one: mine must tell the other ranks about it, and Exchange returns it after the exchange.
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

// Values lists the different values of n ranks, each with its ranks, such as "2 on ranks [0 1]" and "3 on rank 2".
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
