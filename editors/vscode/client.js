// A client of `weir lsp`: JSON-RPC messages with a Content-Length header over the program's
// standard input and output (Language Server Protocol, "Base Protocol"). It knows nothing of the
// editor, so that it can be tested without one.
'use strict';

const { spawn } = require('child_process');

class Client {
  // `onNotice(method, params)` gets notifications, `onEnd(reason)` the end of the program.
  constructor(command, args, onNotice, onEnd) {
    this.waiting = new Map();
    this.lastId = 0;
    this.input = Buffer.alloc(0);
    this.onNotice = onNotice;
    this.ended = false;
    this.server = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.errors = '';
    const end = (reason) => {
      if (this.ended) return;
      this.ended = true;
      for (const { reject } of this.waiting.values()) reject(new Error(reason));
      this.waiting.clear();
      onEnd(reason);
    };
    this.server.on('error', (error) => end(error.message));
    this.server.on('exit', (code, signal) => {
      end(this.errors.trim() || `it ended with ${signal || `status ${code}`}`);
    });
    this.server.stdout.on('data', (data) => this.take(data));
    this.server.stderr.on('data', (data) => {
      this.errors = (this.errors + data).slice(-2000);
    });
    // The program may end while something is written: `exit` reports it.
    this.server.stdin.on('error', () => {});
  }

  take(data) {
    this.input = Buffer.concat([this.input, data]);
    for (;;) {
      const head = this.input.indexOf('\r\n\r\n');
      if (head < 0) return;
      const length = /content-length: *(\d+)/i.exec(this.input.toString('latin1', 0, head));
      const start = head + 4;
      const end = start + (length ? Number(length[1]) : 0);
      if (this.input.length < end) return;
      const body = this.input.toString('utf8', start, end);
      this.input = this.input.subarray(end);
      if (length) this.receive(JSON.parse(body));
    }
  }

  receive(message) {
    if (message.method !== undefined) {
      this.onNotice(message.method, message.params);
      return;
    }
    const waiting = this.waiting.get(message.id);
    if (!waiting) return;
    this.waiting.delete(message.id);
    if (message.error) waiting.reject(new Error(message.error.message));
    else waiting.resolve(message.result);
  }

  write(message) {
    if (this.ended) return;
    const body = Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message }), 'utf8');
    this.server.stdin.write(`Content-Length: ${body.length}\r\n\r\n`);
    this.server.stdin.write(body);
  }

  notify(method, params) {
    this.write({ method, params });
  }

  request(method, params) {
    if (this.ended) return Promise.reject(new Error('weir lsp does not run'));
    const id = ++this.lastId;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.write({ id, method, params });
    });
  }

  async initialize() {
    const answer = await this.request('initialize', { processId: process.pid, capabilities: {} });
    this.notify('initialized', {});
    return answer.capabilities;
  }

  async stop() {
    if (this.ended) return;
    try {
      await this.request('shutdown', null);
      this.notify('exit', null);
    } catch (error) {
      this.server.kill();
    }
  }
}

module.exports = { Client };
