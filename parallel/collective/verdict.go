package collective

import "slices"

// Exchanges of channels are how ranks agree that a step has succeeded. A rank that fails revokes the channel, and must then know whether the
// exchange has still taken place. Between processes one of them, the judge, decides that: the exchange is launched if all ranks have arrived
// there before the judge hears that one has given up. The others wait for its word.

// A verdict is the state of the decision on a round.
type verdict struct {
	launched bool // the judge has launched the round
	final    bool // its word has come, or will not come
	asked    bool // this process has asked the judge to fail the round
}

// noJudge is the judge of rounds that every process decides for itself.
const noJudge = -1

// judge returns the process that decides on the round.
func (r *round) judge() int {
	m := r.rendezvous
	if len(m.peers) > 0 && r.key.channel != 0 {
		for _, p := range r.calls {
			if p != nil && p.op.Kind == KindExchange {
				return m.home(0)
			}
		}
	}
	return noJudge
}

// awaitsVerdict reports whether only another process can decide on the round: this one has told it that its ranks have arrived.
func (r *round) awaitsVerdict() bool {
	judge := r.judge()
	return judge != noJudge && judge != r.rendezvous.world.process && !r.verdict.final && !r.lacksOwn() && !r.lacksForGood()
}

// lacksForGood reports whether a rank that has left, or has revoked the channel, has not arrived. It will not arrive anywhere.
func (r *round) lacksForGood() bool {
	v := r.rendezvous.revoked[r.key.channel]
	return r.rendezvous.anyAbsent(r) != nil || v != nil && slices.ContainsFunc(v.ranks, func(rank int) bool { return r.calls[rank] == nil })
}

// decided reports whether the round may be launched once all ranks have arrived.
func (r *round) decided() bool { return r.verdict.launched || !r.awaitsVerdict() }

// ask asks the judge to fail the round. It reports whether that is needed.
func (r *round) ask(err error) bool {
	if !r.awaitsVerdict() {
		return false
	}
	if !r.verdict.asked {
		r.verdict.asked = true
		r.rendezvous.answerFailed(r.judge(), r.key, err)
	}
	return true
}

// hear takes the judge's word that the round is launched.
func (r *round) hear() {
	r.verdict.launched, r.verdict.final = true, true
	if m := r.rendezvous; r.arrived == len(m.ranks) && !r.over {
		r.launch(0)
	}
}

// failedBy fails the round because another process says so: one whose rank will not arrive, or the judge. Who asks tells only the judge.
func (r *round) failedBy(err error) {
	r.verdict.final = true
	r.fail(err)
}

func (m *rendezvous) tellLaunched(key roundKey) {
	w := m.message(launched)
	w.key(key)
	m.tell(w)
}

// undecided returns the works of rank i for which the judge was asked, in a channel.
func (m *rendezvous) undecided(channel uint64, i int) (works []*Work) {
	for _, r := range m.rounds {
		if r.key.channel == channel && !r.over && r.verdict.asked && r.calls[i] != nil {
			works = append(works, r.calls[i].work)
		}
	}
	return works
}
