package ask

// From gives a piece without what a reader has, who read up to an offset, and up to where the reader has read then. A machine
// may store a piece twice when it lost its place.
func (p OutputPiece) From(at int64) (OutputPiece, int64) {
	length := int64(len(p.Data)) + p.Lost
	have := min(max(at-p.Offset, 0), length)
	cut := min(have, int64(len(p.Data)))
	p.Data, p.Lost, p.Offset = p.Data[cut:], p.Lost-(have-cut), p.Offset+have
	return p, max(at, p.Offset+length-have)
}

// Empty says that there is nothing in a piece.
func (p OutputPiece) Empty() bool { return len(p.Data) == 0 && p.Lost == 0 }
