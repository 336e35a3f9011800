// Package control is the TCP control channel beside the data transport of a world of processes. It carries heartbeats, losses, last words and
// questions, and no data.
//
// Every process has links to some others: to all in worlds of at most 16 processes, otherwise to those that are 1, 2, 4, 8, ... places away on
// the ring of the processes that are left, so some two dozen in a world of thousands. There is no hub whose end or isolation would be everyone's.
// News are flooded: who gets them first passes them on to all its links. A message on a link is kept until it is acknowledged and sent again when
// the connection had to be made anew, so a cut that heals in time loses nothing.
//
// What happens in which order: [Join] exchanges hosts and addresses (join.go), links are dialed and greeted (dial.go, hello.go), frames are
// written and read (link.go, frame.go), news are taken in and passed on (flood.go), silence is noticed (watch.go), questions are gathered
// (collect.go).
//
// Who is to blame: a process whose connection has closed and whose port then refuses has ended. One that is silent for the timeout is hung or cut
// off. If only the network between two processes is cut, the higher number is given up: it waits a little longer before it blames the lower one,
// and hears from the others that it was given up itself. A process that was stopped gives all others a fresh timeout when it goes on.
package control
