package api

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
	"github.com/execwarden/execwarden/schemas/ask"
	"github.com/execwarden/execwarden/schemas/connector"
	"github.com/execwarden/execwarden/schemas/environment"
	"github.com/execwarden/execwarden/schemas/id"
	"github.com/execwarden/execwarden/schemas/volume"
	"github.com/execwarden/execwarden/services/gateway/internal/auth"
	"github.com/execwarden/execwarden/services/gateway/internal/edge"
)

// enrolmentLife is how long a machine may take to enrol after the token was made.
const enrolmentLife = 15 * time.Minute

func (a *API) environments(r *http.Request, who auth.Identity, _ []byte) (ask.Environments, error) {
	return a.Peers.Environments(r.Context(), who)
}

// environmentInput is what a person says of an environment; the rest comes from its machine.
type environmentInput struct {
	Driver environment.Driver `json:"driver"`
}

func (a *API) defineEnvironment(r *http.Request, who auth.Identity, body []byte) (ask.Sequence, error) {
	name, err := named[id.Environment](r)
	if err != nil {
		return ask.Sequence{}, err
	}
	in, err := read[environmentInput](r, body)
	if err != nil {
		return ask.Sequence{}, err
	}
	return a.Peers.DefineEnvironment(r.Context(), who, ask.DefineEnvironment{Environment: name, Driver: in.Driver})
}

type drainInput struct {
	Off bool `json:"off,omitempty"`
}

func (a *API) drainEnvironment(r *http.Request, who auth.Identity, body []byte) (ask.Sequence, error) {
	name, err := named[id.Environment](r)
	if err != nil {
		return ask.Sequence{}, err
	}
	in, err := readOptional[drainInput](r, body)
	if err != nil {
		return ask.Sequence{}, err
	}
	return a.Peers.DrainEnvironment(r.Context(), who, ask.DrainEnvironment{Environment: name, Off: in.Off})
}

func (a *API) removeEnvironment(r *http.Request, who auth.Identity, _ []byte) (ask.InForce, error) {
	name, err := named[id.Environment](r)
	if err != nil {
		return ask.InForce{}, err
	}
	return a.Peers.RemoveEnvironment(r.Context(), who, ask.RemoveEnvironment{Environment: name})
}

// enrolment is shown once: what is kept of the token is its digest.
type enrolment struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
	Server    string    `json:"server"` // where the machine enrols
}

type enrolmentInput struct {
	Replace bool `json:"replace,omitempty"`
}

func (a *API) createEnrolment(r *http.Request, who auth.Identity, body []byte) (enrolment, error) {
	name, err := named[id.Environment](r)
	if err != nil {
		return enrolment{}, err
	}
	in, err := readOptional[enrolmentInput](r, body)
	if err != nil {
		return enrolment{}, err
	}
	token := auth.NewSecret(enrolPrefix + id.Name(who.Tenant) + "." + id.Name(name) + ".")
	out := enrolment{
		Token:     token.Reveal(),
		ExpiresAt: time.Now().Add(enrolmentLife).UTC().Truncate(time.Second), Server: a.Site.URL("", nil),
	}
	_, err = a.Peers.CreateEnrolment(r.Context(), who, ask.CreateEnrolment{Environment: name, Digest: auth.HashOf(token).String(), ExpiresAt: out.ExpiresAt, Replace: in.Replace})
	if err != nil {
		return enrolment{}, err
	}
	return out, nil
}

// enrolPrefix starts a token: ewe_<tenant>.<environment>.<secret>. It says whose it is, so that nothing is searched for.
const enrolPrefix = "ewe_"

// maxEnrol bounds the body of an enrolment, in bytes.
const maxEnrol = 8 << 10

// enrol lets a machine in that has a token. It is the one change that nobody's access token is needed for.
func (a *API) enrol(w http.ResponseWriter, r *http.Request) {
	identity, err := a.enrolled(w, r)
	if err != nil {
		problem.WriteHTTP(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(identity) // the machine asks again with the same token and key
}

func (a *API) enrolled(w http.ResponseWriter, r *http.Request) (connector.Identity, error) {
	body, err := edge.Body(w, r, maxEnrol)
	if err != nil {
		return connector.Identity{}, err
	}
	in, err := read[connector.Enrol](r, body)
	if err != nil {
		return connector.Identity{}, err
	}
	tenant, env, err := ofToken(in.Token)
	if err != nil {
		return connector.Identity{}, err
	}
	return a.Peers.EnrolConnector(r.Context(), tenant, ask.EnrolConnector{Environment: env, Enrol: in})
}

func ofToken(text string) (id.Tenant, id.Environment, error) {
	bad := problem.New(problem.Unauthenticated, "what was sent is not an enrolment token (%s...)", enrolPrefix)
	rest, ok := strings.CutPrefix(text, enrolPrefix)
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 || len(parts[2]) != 43 {
		return "", "", bad
	}
	tenant, err := id.Named[id.Tenant](parts[0])
	if err != nil {
		return "", "", bad
	}
	env, err := id.Named[id.Environment](parts[1])
	if err != nil {
		return "", "", bad
	}
	return tenant, env, nil
}

type attachInput struct {
	Volume  string `json:"volume,omitempty"` // default: main
	Run     string `json:"run,omitempty"`
	Session string `json:"session,omitempty"`
	Agent   string `json:"agent,omitempty"`
}

func (a *API) attach(r *http.Request, who auth.Identity, body []byte) (volume.Defined, error) {
	name, err := named[id.Environment](r)
	if err != nil {
		return volume.Defined{}, err
	}
	in, err := read[attachInput](r, body)
	if err != nil {
		return volume.Defined{}, err
	}
	holder := volume.Holder{Run: id.Run(in.Run), Session: id.Session(in.Session)} // the registry checks them
	if in.Agent != "" {
		if holder.Agent, err = refer[id.Agent](in.Agent); err != nil {
			return volume.Defined{}, err
		}
	}
	return a.Peers.Attach(r.Context(), who, ask.Attach{Environment: name, Volume: in.Volume, Holder: holder})
}

type releaseInput struct {
	Volume string `json:"volume,omitempty"`
	Revoke bool   `json:"revoke,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (a *API) release(r *http.Request, who auth.Identity, body []byte) (ask.Released, error) {
	name, err := named[id.Environment](r)
	if err != nil {
		return ask.Released{}, err
	}
	in, err := readOptional[releaseInput](r, body)
	if err != nil {
		return ask.Released{}, err
	}
	return a.Peers.Release(r.Context(), who, ask.Release{Environment: name, Volume: in.Volume, Revoke: in.Revoke, Reason: in.Reason})
}

type copyInput struct {
	Volume     string `json:"volume,omitempty"`     // default: main
	Checkpoint int    `json:"checkpoint,omitempty"` // to restore
	To         string `json:"to,omitempty"`         // to clone to
}

// copies reads what is asked of a volume.
func copies(r *http.Request, body []byte) (env id.Environment, in copyInput, err error) {
	if env, err = named[id.Environment](r); err != nil {
		return env, in, err
	}
	in, err = readOptional[copyInput](r, body)
	return env, in, err
}

func (a *API) checkpointVolume(r *http.Request, who auth.Identity, body []byte) (volume.Defined, error) {
	env, in, err := copies(r, body)
	if err != nil {
		return volume.Defined{}, err
	}
	return a.Peers.CheckpointVolume(r.Context(), who, ask.CheckpointVolume{Environment: env, Volume: in.Volume})
}

func (a *API) restoreVolume(r *http.Request, who auth.Identity, body []byte) (volume.Defined, error) {
	env, in, err := copies(r, body)
	if err != nil {
		return volume.Defined{}, err
	}
	return a.Peers.RestoreVolume(r.Context(), who, ask.RestoreVolume{Environment: env, Volume: in.Volume, Checkpoint: in.Checkpoint})
}

func (a *API) cloneVolume(r *http.Request, who auth.Identity, body []byte) (volume.Defined, error) {
	env, in, err := copies(r, body)
	if err != nil {
		return volume.Defined{}, err
	}
	return a.Peers.CloneVolume(r.Context(), who, ask.CloneVolume{Environment: env, Volume: in.Volume, To: in.To})
}
