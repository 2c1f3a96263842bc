// The functions that stream-scripts.conf names.

// Nobody who was banned: after allow(), the handlers of other modules in this phase are not asked.
function known(s) {
    if (ngx.shared.banned.has(s.remoteAddress)) s.deny();
    else s.decline();
}

// The first line names the device.
function device(s) {
    s.on('upload', (data) => {
        const end = data.indexOf('\n');
        if (end >= 0) {
            s.variables.device = data.slice(0, end);
            s.done();
        }
    });
}

function behind(s) {
    return s.variables.device.startsWith('sensor') ? '127.0.0.1:5010' : '127.0.0.1:5011';
}

// A line with the client's address goes ahead of the client's bytes.
function stamped(s) {
    s.on('upstream', (data, flags) => {
        s.send(`from ${s.remoteAddress}\n`, { flush: false });
        s.send(data, flags);
        s.off('upstream');
    });
}

function lowered(s) {
    s.on('upload', (data, flags) => s.send(data.toLowerCase(), flags));
}

async function asked(s) {
    const reply = await ngx.fetch('https://gate.example.com/', { method: 'HEAD' });
    if (reply.ok) s.allow();
    else s.deny();
}

function forgive() {
    ngx.shared.banned.clear();
}

export default { known, device, behind, stamped, lowered, asked, forgive };
