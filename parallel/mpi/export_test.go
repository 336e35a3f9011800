//go:build cgo && linux

package mpi

// GiveUp closes a library that was found, so that another one can be.
func (l *Library) GiveUp() { l.close() }

// SetPieceBytes sets the length of the messages that data is cut into.
func SetPieceBytes(n int) { pieceBytes = n }
