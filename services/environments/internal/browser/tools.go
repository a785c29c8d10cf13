package browser

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/execwarden/execwarden/libs/problem"
)

// Text is what a page has.
type Text struct {
	Page
	Text      string `json:"text"`                // a line an element, indented; what can be used has [ref]
	Truncated string `json:"truncated,omitempty"` // "size" or "time"
}

// Bounds of Text, in characters.
const (
	DefaultText = 20_000
	MaxText     = 100_000
)

// Read gives what a page shows as text.
func (b *Browser) Read(ctx context.Context, most int) (Text, error) {
	if most == 0 {
		most = DefaultText
	}
	if most < 1 || most > MaxText {
		return Text{}, problem.New(problem.Invalid, "max_chars is outside 1 to %d", MaxText)
	}
	var out struct {
		Text      string `json:"text"`
		Truncated string `json:"truncated"`
	}
	if err := b.eval(ctx, fmt.Sprintf("read(%d, 2000)", most), &out); err != nil {
		return Text{}, err
	}
	page, err := b.page(ctx, false)
	return Text{Page: page, Text: out.Text, Truncated: out.Truncated}, err
}

// eval runs our own script in our own world of the page.
func (b *Browser) eval(ctx context.Context, expression string, out any) error {
	t, err := b.current()
	if err != nil {
		return err
	}
	var world struct {
		Context int `json:"executionContextId"`
	}
	if err := b.ask(ctx, t.session, "Page.createIsolatedWorld", map[string]any{"frameId": t.frame, "worldName": "execwarden"}, &world); err != nil {
		return err
	}
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	err = b.ask(ctx, t.session, "Runtime.evaluate", map[string]any{
		"contextId": world.Context, "expression": "globalThis.ew === true || " + script + "; " + expression, "returnByValue": true, "timeout": 5000,
	}, &answer)
	switch {
	case err != nil:
		return err
	case answer.Exception != nil:
		return problem.New(problem.Upstream, "the page cannot be read: %.200s", answer.Exception.Text)
	}
	return json.Unmarshal(answer.Result.Value, out)
}

type spot struct {
	X, Y  float64
	Fault string
	Done  bool
}

var faults = map[string]error{
	"gone":   problem.New(problem.Invalid, "there is no such ref on this page any more; browser_read gives those that are"),
	"hidden": problem.New(problem.Invalid, "the element is not visible"),
	"option": problem.New(problem.Invalid, "there is no such option"),
	"text":   problem.New(problem.Invalid, "the element takes no text"),
}

// Click clicks an element, and waits for the page that it leads to.
func (b *Browser) Click(ctx context.Context, ref int) (Page, error) {
	if err := b.click(ctx, ref); err != nil {
		return Page{}, err
	}
	return b.settled(ctx)
}

func (b *Browser) click(ctx context.Context, ref int) error {
	var at spot
	if err := b.eval(ctx, fmt.Sprintf("at(%d)", ref), &at); err != nil {
		return err
	}
	if at.Fault != "" {
		return faults[at.Fault]
	}
	t, err := b.current()
	if err != nil {
		return err
	}
	for _, kind := range []string{"mouseMoved", "mousePressed", "mouseReleased"} {
		event := map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}
		if kind == "mouseMoved" {
			event["button"], event["clickCount"] = "none", 0
		}
		if err := b.ask(ctx, t.session, "Input.dispatchMouseEvent", event, nil); err != nil {
			return err
		}
	}
	return nil
}

// settled waits for what an input led to.
func (b *Browser) settled(ctx context.Context) (Page, error) {
	select {
	case <-time.After(settle):
	case <-ctx.Done():
	}
	err := b.until(ctx, func() bool { return !b.tab.loading })
	if err != nil && problem.CodeOf(err) != problem.Timeout {
		return Page{}, err
	}
	return b.page(ctx, err != nil)
}

// Type puts text into an element in place of what is there, or chooses an option; submit presses Enter then.
func (b *Browser) Type(ctx context.Context, ref int, text string, submit bool) (Page, error) {
	quoted, err := json.Marshal(text)
	if err != nil {
		return Page{}, err
	}
	var at spot
	if err := b.eval(ctx, fmt.Sprintf("fill(%d, %s)", ref, quoted), &at); err != nil {
		return Page{}, err
	}
	if at.Fault != "" {
		return Page{}, faults[at.Fault]
	}
	t, err := b.current()
	if err != nil {
		return Page{}, err
	}
	if !at.Done {
		if err := b.ask(ctx, t.session, "Input.insertText", map[string]any{"text": text}, nil); err != nil {
			return Page{}, err
		}
	}
	if submit {
		for _, kind := range []string{"keyDown", "keyUp"} {
			key := map[string]any{"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
			if kind == "keyUp" {
				delete(key, "text")
			}
			if err := b.ask(ctx, t.session, "Input.dispatchKeyEvent", key, nil); err != nil {
				return Page{}, err
			}
		}
	}
	return b.settled(ctx)
}

// MaxShot bounds a picture that is answered, in bytes; a larger one is made smaller.
const MaxShot = 192 << 10

// Shot is a picture of what is visible.
type Shot struct {
	PNG    []byte
	Width  int
	Height int
}

// Screenshot pictures what is visible, in at most so many bytes.
func (b *Browser) Screenshot(ctx context.Context, most int) (Shot, error) {
	t, err := b.current()
	if err != nil {
		return Shot{}, err
	}
	var view struct {
		CSS struct {
			X      float64 `json:"pageX"`
			Y      float64 `json:"pageY"`
			Width  float64 `json:"clientWidth"`
			Height float64 `json:"clientHeight"`
		} `json:"cssVisualViewport"`
	}
	if err := b.ask(ctx, t.session, "Page.getLayoutMetrics", struct{}{}, &view); err != nil {
		return Shot{}, err
	}
	for scale := 1.0; ; scale /= 2 {
		var shot struct {
			Data string `json:"data"`
		}
		clipped := map[string]any{"x": view.CSS.X, "y": view.CSS.Y, "width": view.CSS.Width, "height": view.CSS.Height, "scale": scale}
		if err := b.ask(ctx, t.session, "Page.captureScreenshot", map[string]any{"format": "png", "clip": clipped}, &shot); err != nil {
			return Shot{}, err
		}
		raw, err := base64.StdEncoding.DecodeString(shot.Data)
		if err != nil {
			return Shot{}, problem.Wrap(err, problem.Upstream, "the picture cannot be read")
		}
		if len(raw) <= most {
			return Shot{raw, int(view.CSS.Width * scale), int(view.CSS.Height * scale)}, nil
		}
		if scale < 1.0/8 {
			return Shot{}, problem.New(problem.TooLarge, "the picture has over %d bytes; give a path to have it as a file", most)
		}
	}
}
