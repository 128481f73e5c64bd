"""A DAG for Airflow 3 that audits every night's copies of a cluster's log directories with `nightly_audit.py` in the same folder.

It needs `apache-airflow-providers-apache-spark`, a connection `spark_default` with the master, and on Airflow's workers a
`spark-submit` whose Python has kafka-forensics; docs/clusters.md says how it gets there. The task fails with every exit status but
0, and its log shows the status: retries would not remove findings, and the results are written anyway.
"""

from datetime import UTC, datetime
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, Param
from airflow.timetables.trigger import CronTriggerTimetable

TONIGHT = "{{ (dag_run.logical_date or dag_run.run_after) | ds }}"
LAST_NIGHT = "{{ macros.ds_add((dag_run.logical_date or dag_run.run_after) | ds, -1) }}"

with DAG(
    "kafka_nightly_audit",
    schedule=CronTriggerTimetable("30 3 * * *", timezone="UTC"),  # its date is that of the night
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    params={
        "snapshots": Param("/snapshots", type="string", description="where copies are: a folder for each night, like 2026-11-25"),
        "output": Param("/lake/kafka-audits", type="string", description="where audits go: every worker must see it"),
        "compare": Param(default=True, type="boolean", description="with last night's copies; turn it off for the first night"),
    },
):
    SparkSubmitOperator(
        task_id="audit",
        name="kafka-nightly-audit",
        application=str(Path(__file__).with_name("nightly_audit.py")),
        application_args=[
            f"{{{{ params.snapshots }}}}/{TONIGHT}",
            "--output={{ params.output }}",
            f"--snapshot={TONIGHT}",
            f"--since={{% if params.compare %}}{LAST_NIGHT}={{{{ params.snapshots }}}}/{LAST_NIGHT}{{% endif %}}",
        ],
        retries=0,
    )
