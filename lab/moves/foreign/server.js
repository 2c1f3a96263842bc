// A server of `ws` that sends each message back: server.js PORT.
const { WebSocketServer } = require('ws');

const server = new WebSocketServer({ host: '127.0.0.1', port: Number(process.argv[2]), backlog: 4096 });
server.on('listening', () => console.log('ready'));
server.on('connection', (socket) => {
  socket.on('message', (message, binary) => socket.send(message, { binary }));
  socket.on('error', (error) => console.error('server:', error.message));
});
