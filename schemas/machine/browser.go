package machine

import "github.com/execwarden/execwarden/schemas/connection"

// BrowserOpenArgs are of machine.browser_open.
type BrowserOpenArgs struct {
	URL     string `json:"url"`
	Timeout int    `json:"timeout_s,omitempty"` // of this and the others: default 30, at most 120
}

// BrowserClickArgs are of machine.browser_click.
type BrowserClickArgs struct {
	Ref     int `json:"ref"` // as browser_read answered it
	Timeout int `json:"timeout_s,omitempty"`
}

// BrowserTypeArgs are of machine.browser_type: text in place of what an element holds, or the option to choose.
type BrowserTypeArgs struct {
	Ref     int    `json:"ref"`
	Text    string `json:"text"`
	Submit  bool   `json:"submit,omitempty"` // press Enter then
	Timeout int    `json:"timeout_s,omitempty"`
}

// BrowserReadArgs are of machine.browser_read.
type BrowserReadArgs struct {
	Max     int `json:"max_chars,omitempty"` // default 20000, at most 100000
	Timeout int `json:"timeout_s,omitempty"`
}

// BrowserScreenshotArgs are of machine.browser_screenshot, which answers the picture, made smaller where it is large, and has no
// path, and of machine.browser_screenshot_file, which writes it to one.
type BrowserScreenshotArgs struct {
	Path    string `json:"path,omitempty"`
	Timeout int    `json:"timeout_s,omitempty"`
}

// BrowserDownloadArgs are of machine.browser_download. Ref or URL, not both.
type BrowserDownloadArgs struct {
	Ref     int    `json:"ref,omitempty"`
	URL     string `json:"url,omitempty"`
	Timeout int    `json:"timeout_s,omitempty"`
}

// Screenshot is a picture of what is visible.
type Screenshot struct {
	Path   string `json:"path,omitempty"`
	PNG    []byte `json:"png_base64,omitempty"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
}

const (
	ofRef     = `"ref":{"type":"integer","minimum":1,"description":"the number in brackets that browser_read gave"}`
	ofTimeout = `,"timeout_s":{"type":"integer","minimum":1,"maximum":120}`
)

// A page may do anything when it is opened or clicked. Reading what it shows changes nothing.
var browserTools = []connection.Tool{
	tool("browser_open", connection.Opaque, true, "Open a page in the machine's browser, in place of the one that is open. It reaches what the machine's commands reach; a server that exec began is at http://localhost:PORT.",
		`"url":{"type":"string"}`+ofTimeout, `"url"`),
	tool("browser_read", connection.Pure, false, "Read what the open page shows, as text: an element a line, with [ref] where it can be clicked or typed into.",
		`"max_chars":{"type":"integer","minimum":1,"maximum":100000}`+ofTimeout, ""),
	tool("browser_click", connection.Opaque, true, "Click an element of the open page.", ofRef+ofTimeout, `"ref"`),
	tool("browser_type", connection.Opaque, true, "Type text into an element in place of what it holds, or choose an option of a list. submit presses Enter.",
		ofRef+`,"text":{"type":"string","maxLength":100000},"submit":{"type":"boolean"}`+ofTimeout, `"ref","text"`),
	tool("browser_screenshot", connection.Pure, false, "Picture what is visible of the open page, as PNG in base64.", ofTimeout[1:], ""),
	tool("browser_screenshot_file", connection.Opaque, true, "Picture what is visible of the open page into a PNG file.", ofPath+ofTimeout, `"path"`),
	tool("browser_download", connection.Opaque, true, "Take a file that a page gives, by clicking an element or from an address, into downloads/ in the volume.",
		ofRef+`,"url":{"type":"string"}`+ofTimeout, ""),
	tool("browser_close", connection.Opaque, true, "Close the browser; its logins and history go.", ``, ""),
}
