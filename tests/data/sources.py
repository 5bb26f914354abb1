"""The files that expected.py counts: name, form, and what the form does not say by itself.

HERE lie beside this script; SHARED lie only in the shared data folder, for their licence forbids a copy.
"""
SONAR = ("JobID,JobIDRaw,User,Account,State,Start,End,AveCPU,AveDiskRead,AveDiskWrite,AveRSS,AveVMSize,ElapsedRaw,ExitCode,"
         "Layout,MaxRSS,MaxVMSize,MinCPU,ReqCPUS,ReqMem,ReqNodes,Reservation,Submit,Suspended,SystemCPU,TimelimitRaw,UserCPU,"
         "NodeList,Partition,AllocTRES,Priority,JobName").split(",")
XDMOD = ("jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,"
         "nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname").split(",")
CEEMS = ("JobID,Partition,QOS,Account,Group,GID,User,UID,Submit,Start,End,Elapsed,ElapsedRaw,ExitCode,State,AllocTRES,NodeList,"
         "JobName,WorkDir").split(",")
LAB_SHORT = "JobID,Account,User,State,Elapsed,AllocTRES,Start,End".split(",")
SQUEUE = ("TRES-PER-NODE,MINCPUS,JOBARRAYID,JOBID,NAME,TIMELIMIT,MINMEMORY,COMMAND,PRIORITY,STATE,USERNAME,NUMCPUS,NUMNODES,"
          "TIMELEFT,TIMEUSED,NODELIST,DEPENDENCY,EXCNODES,STARTTIME,SUBMITTIME,ELIGIBLETIME,ACCRUETIME,PENDINGTIME,COMMENT,"
          "PARTITION,ACCOUNT,QOS,REASON,TRES-ALLOC,RESERVATION,REQUEUE,FEATURE,RESTARTCNT,SCHEDNODES,LASTSCHEDEVAL").split(",")

NO_RAW = "JobIDRaw and Cluster: array tasks are told apart by JobID, clusters not at all"
NO_TRES = "AllocTRES: how many GPUs were held is not told, so nothing can be charged"
NO_GRES = "GPUs: the cluster does not keep gres/gpu in its accounting, so TRES show none; only the submit line or gres_detail do"
CONTROLLER = "every job that ended a while ago; the end of a running job is only its limit"

OPENB = {"id": "name", "start": "scheduled_time", "end": "deletion_time", "gpus": "num_gpu", "milli": "gpu_milli",
         "state": "pod_phase", "missing": ["Cluster", "User", "Account"],
         "loses": "fractions of a GPU if num_gpu alone is read; times count from the start of the trace"}
DLRM = {"id": "instance_sn", "start": "scheduled_time", "end": "deletion_time", "gpus": "gpu_request",
        "missing": ["Cluster", "User", "State"],
        "loses": "what began before the window (no start) and what ended after it (no end)"}
GENAI = {"start": "gmt_create", "length": "exec_time_seconds", "gpus": 1, "state": "predict_status",
         "missing": ["JobIDRaw", "Cluster", "AllocTRES", "User"],
         "loses": "when a request began to run, and its GPU: gmt_create and one GPU each are assumptions"}
CHRONUS = {"id": "job_id", "start": "submit_time", "length": "duration", "gpus": "num_gpu", "unit": 60,
           "missing": ["Cluster", "Start", "State"],
           "loses": "the start: submit_time stands in; both times are minutes from the start of the trace"}
PHILLY = {"start": "timestamp", "length": "duration", "gpus": "num_gpus", "missing": ["JobIDRaw", "User", "State"],
          "loses": "the id: rows are known by their content"}

LAB = "sacct-local/sacct-"
HERE = [
    (LAB + "P-D-with-steps.txt", "table", {}),
    (LAB + "P-D-X-allocations.txt", "table", {}),
    (LAB + "P-D-X-us-delimiter.txt", "table", {"delimiter": "\x1f"}),
    (LAB + "P-X-no-duplicates.txt", "table", {"loses": "earlier attempts of a job: -D was not given"}),
    (LAB + "P-D-X-noheader-short.txt", "table", {"heading": LAB_SHORT, "loses": NO_RAW}),
    (LAB + "units-G.txt", "table", {"loses": NO_RAW}),
    (LAB + "truncate-window.txt", "table", {"loses": NO_TRES + "; starts and ends are cut to the window by -T"}),
    (LAB + "window-no-truncate.txt", "table", {"loses": NO_TRES}),
    ("sacct-local/sacct.json", "accounting", {}),
    ("slurm/gcm/sample-sacct-one-multiline.txt", "table", {"delimiter": "|#"}),
    ("slurm/gcm/sample-sacct-one-multiline-expected.txt", "table", {"delimiter": "|#"}),
    ("slurm/gcm/sample-sacct-output-midnight-edge-case.txt", "table", {"loses": NO_TRES}),
    ("slurm/gcm/sample-sacct-output-with-invalid-lines.txt", "table", {}),
    ("slurm/gcm/sample-sacct-output.txt", "table", {"loses": "all allocations: only steps are in it"}),
    ("slurm/gcm/sample-sacct-running-output.txt", "table",
     {"delimiter": "|#", "loses": "all allocations: only one step, ten times"}),
    ("slurm/gcm/sample-squeue-output.txt", "squeue", {"delimiter": "|#", "heading": SQUEUE, "loses": CONTROLLER}),
    ("slurm/sonar/sacct-output.txt", "table", {"heading": SONAR, "loses": "Cluster"}),
    ("slurm/sonar/sacctd-output.txt", "sonar", {"loses": "Cluster; Suspended where it is 0"}),
    ("slurm/sonar/sacct_resource.txt", "table", {"heading": SONAR, "loses": "Cluster"}),
    ("slurm/sonar/scontrol_resource1.txt", "scontrol", {"loses": "Cluster; " + CONTROLLER}),
    ("slurm/telegraf/jobs.json", "controller", {"loses": CONTROLLER}),
    ("slurm/rivos/squeue_out.json", "controller", {"loses": CONTROLLER}),
    ("slurm/shape/sacct_exclusive_req_vs_alloc.psv", "table", {"loses": "Cluster"}),
    ("slurm/shape/sacct-traps-crlf.psv", "table", {}),
    ("slurm/shape/ceems-like.txt", "table", {"heading": CEEMS, "loses": NO_RAW}),
    ("slurm/shape/xdmod-like.log", "table",
     {"heading": XDMOD, "note": "job 7005 is RUNNING with an end equal to its start; 7002 is one attempt told by two ranges"}),
    ("traces/alibaba-openb-2023/openb_pod_list_default.csv", "trace", OPENB),
    ("traces/alibaba-openb-2023/openb_pod_list_gpuspec33.csv", "trace", OPENB),
    ("traces/chronus/chronus_trace_job_Philly_MIX1.csv.gz", "trace", CHRONUS),
    ("traces/shape/dlrm-like.csv", "trace", DLRM),
    ("traces/shape/genai-like.csv", "trace", GENAI),
    ("docs/examples/philly/philly.csv.gz", "trace", PHILLY),
]
for version in ("24.05/0.0.41", "24.11/0.0.42", "25.05/0.0.43"):
    EARLY = {"note": "read just after the start"} if version != "24.05/0.0.41" else {
        "note": "state PENDING, though it has a start and a step, and no end: it counts as running"}
    HERE += [(f"slurm/slurm-web/{version}/slurmdb-job-{name}.json", "accounting",
              {"loses": NO_GRES, **(EARLY if "multi" in name else {})}) for name in (
        "failed", "gpus-archived", "gpus-completed", "gpus-multi-nodes", "gpus-multi-types", "timeout")]
    HERE += [(f"slurm/slurm-web/{version}/slurm-job-gpus-{name}.json", "controller", {"loses": NO_GRES + "; " + CONTROLLER})
             for name in ("gres", "running")]

SHARED = [
    ("slurm/ceems/sacct.txt", "table", {"heading": CEEMS, "loses": NO_RAW}),
    ("slurm/xdmod/accounting-logs-with-job-arrays.log", "table", {"heading": XDMOD}),
    ("slurm/xdmod/accounting-logs.log", "table", {"heading": XDMOD}),
    ("slurm/xdmod/non-ended-job-state.log", "table",
     {"heading": XDMOD, "note": "job 3451067 is RUNNING with an end equal to its start"}),
    ("slurm/xdmod/phillips.log.gz", "table", {"heading": XDMOD}),
    ("slurm/xdmod/pozidriv.log.gz", "table", {"heading": XDMOD}),
    ("traces/alibaba-dlrm-2025/disaggregated_DLRM_trace.csv.gz", "trace", DLRM),
    ("traces/alibaba-genai-2026/lora_request_trace.tar.gz", "trace", GENAI),
    ("slurm/clockwork/sacct_1.json", "accounting",
     {"note": "job 10 is NODE_FAIL with an end of 0 and 20,615 s elapsed; without an end it counts as running"}),
]
SHARED += [(f"slurm/sarc/{name}.json", "accounting", {}) for name in (
    "fromage_1706227200", "fromage_1711411200", "fromage_1716595200", "mila_1706227200", "mila_1708819200",
    "mila_1714003200", "mila_1716595200", "raisin_1714003200", "raisin_1716595200", "raisin_1721779200", "raisin_base_job",
    "raisin_no_prometheus_1711411200", "raisin_no_prometheus_1716595200")]
