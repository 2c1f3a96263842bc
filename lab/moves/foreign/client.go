// Sessions of gorilla/websocket over crypto/tls: client URL SESSIONS. Prints `ready`, and the
// events at SIGTERM.
package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
)

type counts struct {
	Sessions int            `json:"sessions"`
	Messages int            `json:"messages"`
	Wrong    int            `json:"wrong"`
	Closed   int            `json:"closed"`
	Suites   map[string]int `json:"suites"`
}

// TLS 1.2 with one suite each; 1.3, whose suites this library chooses itself.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
	0,
}

func main() {
	url := os.Args[1]
	sessions, _ := strconv.Atoi(os.Args[2])
	sum := counts{Sessions: sessions, Suites: map[string]int{}}
	var lock sync.Mutex
	var all, opened sync.WaitGroup
	done, few := make(chan struct{}), make(chan struct{}, 50)
	failed := func(err error) {
		lock.Lock()
		defer lock.Unlock()
		sum.Closed++
		fmt.Fprintln(os.Stderr, "go:", err)
	}
	session := func(i int) {
		defer all.Done()
		config := &tls.Config{InsecureSkipVerify: true}
		if suite := suites[i%len(suites)]; suite != 0 {
			config.CipherSuites, config.MaxVersion = []uint16{suite}, tls.VersionTLS12
		} else {
			config.MinVersion = tls.VersionTLS13
		}
		few <- struct{}{}
		c, _, err := (&websocket.Dialer{TLSClientConfig: config}).Dial(url, nil)
		<-few
		opened.Done()
		if err != nil {
			failed(err)
			return
		}
		defer c.Close()
		state := c.NetConn().(*tls.Conn).ConnectionState()
		lock.Lock()
		sum.Suites[tls.CipherSuiteName(state.CipherSuite)]++
		lock.Unlock()
		for k := 0; ; k++ {
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
			}
			message := fmt.Sprintf("%d:%d:", i, k) + strings.Repeat("z", k*797%4000)
			if err = c.WriteMessage(websocket.TextMessage, []byte(message)); err == nil {
				c.SetReadDeadline(time.Now().Add(20 * time.Second))
				var answer []byte
				if _, answer, err = c.ReadMessage(); err == nil {
					lock.Lock()
					if string(answer) == message {
						sum.Messages++
					} else {
						sum.Wrong++
					}
					lock.Unlock()
				}
			}
			if err != nil {
				failed(err)
				return
			}
		}
	}
	all.Add(sessions)
	opened.Add(sessions)
	for i := 0; i < sessions; i++ {
		go session(i)
	}
	opened.Wait()
	fmt.Println("ready")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	close(done)
	all.Wait()
	text, _ := json.Marshal(sum)
	fmt.Println(string(text))
}
