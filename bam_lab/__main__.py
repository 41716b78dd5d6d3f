"""`python -m bam_lab` is `bam-lab`."""

from bam_lab.cli.main import main

if __name__ == "__main__":
    main()
