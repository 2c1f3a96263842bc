// Connects again and again, asks for a page, and prints it, or the error.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Arguments: address, version (1.2, 1.3), "resumed" or "fresh", number of connections, file of the
// authority, and, for a client's certificate, its file and that of its key.
func main() {
	config := &tls.Config{ServerName: "localhost", RootCAs: x509.NewCertPool()}
	config.MinVersion = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[os.Args[2]]
	config.MaxVersion = config.MinVersion
	if os.Args[3] == "resumed" {
		config.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	}
	count, _ := strconv.Atoi(os.Args[4])
	authority, _ := os.ReadFile(os.Args[5])
	config.RootCAs.AppendCertsFromPEM(authority)
	if len(os.Args) > 6 {
		pair, err := tls.LoadX509KeyPair(os.Args[6], os.Args[7])
		if err != nil {
			panic(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	for i := 0; i < count; i++ {
		fmt.Println(ask(config))
	}
}

func ask(config *tls.Config) string {
	conn, err := tls.Dial("tcp", os.Args[1], config)
	if err != nil {
		return "error: " + err.Error()
	}
	defer conn.Close()
	if _, err = io.WriteString(conn, "GET /tls HTTP/1.0\r\n\r\n"); err != nil {
		return "error: " + err.Error()
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "error: " + err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(answer)), "\n")
	return lines[len(lines)-1]
}
