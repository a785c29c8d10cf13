package toolbroker

import (
	"github.com/execwarden/execwarden/libs/executor"
	"github.com/execwarden/execwarden/schemas/call"
	"github.com/execwarden/execwarden/services/toolbroker/internal/upstream"
)

// news passes on what a call says while it runs.
func (s *Service) news(w *executor.Work) func(upstream.News) {
	say := s.gate.News(w, s.now)
	return func(said upstream.News) {
		say(call.News{Level: said.Level, Progress: said.Progress, Total: said.Total, Message: said.Message})
	}
}
