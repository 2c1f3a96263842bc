# Replaces the program of a running server by the one that /usr/sbin/nginx is now, with its sockets and without a gap:
# USR2 starts the new program beside the old one, QUIT lets the old one answer what it has begun and leave. A server
# whose configuration the new program refuses goes on as it is.
take_over() {
    pid_file=/run/nginx.pid
    [ -s "$pid_file" ] || return 0
    old=$(cat "$pid_file")
    kill -0 "$old" 2>/dev/null || return 0
    if ! /usr/sbin/nginx -t -q; then
        echo "the running server goes on as it is: its configuration is refused (nginx -t)" >&2
        return 0
    fi
    # A server starts the new program by the word that it was started with itself.
    title=$(tr '\0' ' ' <"/proc/$old/cmdline" 2>/dev/null || :)
    word=${title#*master process }
    case ${word%% *} in
    /*) ;;
    *)
        echo "the running server goes on as it is: it was started as \"${word%% *}\", without a path;" >&2
        echo "stop it (kill -QUIT $old) and start it by its unit, or as /usr/sbin/nginx" >&2
        return 0
        ;;
    esac
    kill -USR2 "$old"
    waited=0
    while [ "$waited" -lt 100 ]; do
        new=$(cat "$pid_file" 2>/dev/null || echo)
        if [ -n "$new" ] && [ "$new" != "$old" ] && [ -s "$pid_file.oldbin" ]; then
            # The new program has its pid file before its workers accept.
            sleep 1
            kill -QUIT "$old"
            return 0
        fi
        sleep 0.1
        waited=$((waited + 1))
    done
    echo "the running server goes on as it is: the other program did not start" >&2
}
