"""The five lines that a peer and `compare.py` exchange, for peers in Python. The Rust peers speak the same.

    -> READY {"first_step_s": .., "since_exec_s": .., "parameters": .., "loss1": .., "loss5": ..}   after the fifth step is done
    <- RUN n                                                                                        run n steps, wait for the last one
    -> DONE seconds
    <- QUIT
    -> BYE {"peak_rss_mb": ..}
"""
import json, os, sys, time


def serve(run, parameters):
    """`run(n)` does n steps, one after the other, and gives the loss of the last."""
    started = time.perf_counter()
    loss1 = run(1)
    ready = {"first_step_s": round(time.perf_counter() - started, 3), "since_exec_s": round(since_exec(), 3), "parameters": parameters}
    ready |= {"loss1": round(loss1, 4), "loss5": round(run(4), 4)}
    print("READY " + json.dumps(ready), flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] != "RUN":
            break
        started = time.perf_counter()
        run(int(words[1]))
        print("DONE %.9f" % (time.perf_counter() - started), flush=True)
    print("BYE " + json.dumps({"peak_rss_mb": round(peak_rss_mb(), 1)}), flush=True)
    os._exit(0)  # threads of the frameworks need not be waited for


def since_exec():
    """Seconds since this process was started, interpreter and imports included."""
    ticks = int(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19])
    return float(open("/proc/uptime").read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def peak_rss_mb():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
